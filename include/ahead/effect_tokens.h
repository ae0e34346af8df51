#pragma once

#include <cstddef>

#include "ahead/backend_traits.h"
#include "ahead/executable.h"
#include "ahead/export.h"
#include "ahead/graph.h"

/// For backends that run nodes in any order that their operands allow: tokens make the order of
/// effects a matter of operands. A token is a tensor without elements.
namespace ahead {

/// Gives the effects of a graph a token, if it has any. Each becomes a call of a sub-graph
/// (`ahead.call`) that takes the token first and returns it first, and each takes the token that
/// the one before returned. The first token is an input of the graph and the last one an output,
/// slot `Token 0`: before all others in a graph that computes results, behind all others (and so
/// behind the tangents) in a backward. Writes of LibTorch's operators to their arguments, which
/// operands show, have none. Returns the number of effects.
AHEAD_API size_t lift_effect_tokens(Graph& graph);

/// Lets a graph with such an input make its first token itself (`ahead.make_token`) and drop the
/// last one (`ahead.sink_token`). Returns the number of tokens that are no inputs any more. Throws
/// UserError for a graph that takes a token and returns none, or the other way round.
AHEAD_API size_t unlift_effect_tokens(Graph& graph);

/// Undoes both: effects are nodes in order again. Returns the number of effects.
AHEAD_API size_t remove_effect_tokens(Graph& graph);

namespace aot {

/// Wraps a compiler so that it gets graphs with tokens. What it makes takes a new token in each
/// call and returns one, which is dropped; callers know nothing of either. A backend that is
/// registered with BackendTraits::effect_tokens is wrapped like this.
AHEAD_API GraphCompiler with_effect_tokens(GraphCompiler compiler, EffectTokens tokens);

}  // namespace aot
}  // namespace ahead
