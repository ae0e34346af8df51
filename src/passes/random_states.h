#pragma once

#include <functional>

#include "ahead/graph.h"

namespace ahead::passes {

/// Whether a node draws from the default generator of a device whose states graphs can hold, and
/// could be told the state instead.
bool draws_by_default(const Node& node);

/// Whether a checkpoint asks for the node to run again, and keeping the state that it draws from
/// takes less memory than keeping its results.
bool is_worth_drawing_again(const Node& node);

/// Lets the nodes that draw by default, and are wanted, say which state they draw from:
///
///     y = aten.bernoulli.p(x, 0.5)         seed, s0 = ahead.generator_state(cpu)
///                                   ──►    y, s1 = ahead.random.aten.bernoulli.p(seed, s0, x, 0.5)
///                                          ahead.set_generator_state(seed, s1, cpu)
///
/// The middle node may run again. Between nodes that follow each other the state may be handed on
/// without the generator. Returns how many nodes were changed.
enum class HandOn : uint8_t { States, Nothing };
size_t name_states(Graph& graph, const std::function<bool(const Node&)>& is_wanted, HandOn hand_on);

/// Puts one node that draws from the generator in place of the three that name_states() made, where
/// nothing is handed on: the operator itself or, if something else needs the state, as that which
/// is computed again, the one that tells it (`ahead.draw`), during which other threads wait.
size_t draw_directly(Graph& graph);

/// Lets a graph take the states of generators as inputs, Seed and Offset, and return where they
/// stand in the end as outputs Offset, and Seed if that is another one, too. What its nodes draw is
/// a function of its inputs then. The index of these slots is random_slot().
size_t functionalize_random(Graph& graph);

/// 2 · device (0: the CPU, i + 1: CUDA device i), and one more for what the backward draws.
int32_t random_slot(at::Device device, Phase phase);
at::Device device_of_random_slot(int32_t index);

}  // namespace ahead::passes
