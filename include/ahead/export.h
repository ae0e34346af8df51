#pragma once

/// Marks a declaration as part of the public interface of the shared library.
#define AHEAD_API __attribute__((visibility("default")))
