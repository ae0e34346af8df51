#pragma once

#include <string_view>

/// A short story, to learn letters from.
extern const std::string_view story;
