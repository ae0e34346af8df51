#pragma once

#include "ahead/graph.h"

/// Random operators as functions of the state that they draw from:
///
///     ahead::random.aten.bernoulli.p(seed, offset, self, p, generator) -> (result, new offset)
///
/// It runs LibTorch's own kernel on a generator of its own, which it puts into that state first, so
/// that it gives what the operator itself would give there, as often as it is run. One that writes
/// to its first argument returns the new contents instead.
namespace ahead {

/// The functional form of a random operator; null if it has none: it writes to something else, or
/// returns what is no tensor. It is registered with the dispatcher when it is first asked for.
const Operator* random_form(const Operator& op);

/// The form of a random operator that draws from the default generator, and tells what state that
/// was in: `ahead::draw.aten.bernoulli.p(self, p, generator) -> (result, seed, offset)`. Other
/// threads that draw meanwhile wait. Null if it has none.
const Operator* telling_form(const Operator& op);

/// The operator of which this is the functional form; null if it is none.
const Operator* drawn_by(const Operator& form);

/// The position of the argument by which the operator is told its generator; -1 if it takes none.
int64_t generator_argument(const Operator& op);

}  // namespace ahead
