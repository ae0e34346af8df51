#pragma once

/// The folder tests/ of the source tree, where golden files are.
extern const char* const test_data;
