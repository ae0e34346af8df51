#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ahead/ahead.h"

namespace ahead {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using PassFunction = size_t (*)(Graph&);

/// Expects the pass to turn one program into another, with this number of changes, and to leave the
/// other one alone.
void expect_rewritten(PassFunction pass, const std::string& before, const std::string& after,
                      size_t changes);
/// Expects the pass to leave the program alone.
void expect_unchanged(PassFunction pass, const std::string& text);

}  // namespace ahead
