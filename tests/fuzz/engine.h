#pragma once

#include "fuzz/check.h"
#include "fuzz/program.h"

namespace ahead::fuzz {

/// Runs the program eagerly and its backward with compiled autograd, twice, and compares with the
/// eager engine. Depending on the seed, nodes and leaves get hooks, some or all roots are
/// differentiated, gradients are returned or accumulated, and the graph is retained and run once
/// more.
Verdict check_engine(const Program& program);

}  // namespace ahead::fuzz
