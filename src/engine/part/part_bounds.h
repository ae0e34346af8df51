#pragma once

#include <cstddef>
#include <vector>

#include "engine/gradients.h"
#include "engine/walk/backward.h"
#include "engine/walk/step.h"

/// Where parts begin and end. Kinds are those of a program's steps, as far as it knows.
namespace ahead::engine {

/// Whether a step of this kind is done by a graph.
bool is_for_graphs(Step::Kind kind);

/// Whether this step is the first of a part. Leaves and results need no graph of their own, unless
/// it is a piece of a larger one.
bool begins_part(const std::vector<Step::Kind>& kinds, const std::vector<Step>& steps,
                 size_t begin);

/// One after the last step of the part that begins there: user code, or a step that is not for
/// graphs.
size_t end_of_part(const std::vector<Step::Kind>& kinds, const Backward& backward, size_t begin);

/// The first step from `begin` on for which hooks have not unpacked everything; `end` at most.
size_t end_of_unpacked(size_t begin, size_t end, const Backward& backward,
                       const Gradients& gradients);

/// Whether graphs can take all gradients that wait for these steps, or where these lead to.
bool are_traceable(const Backward& backward, size_t begin, size_t end, const Gradients& gradients);

/// The kinds that a new program begins with: what the walk says, except that a chain of nodes with
/// user code within it cannot be one graph.
std::vector<Step::Kind> first_kinds(const Backward& backward);

}  // namespace ahead::engine
