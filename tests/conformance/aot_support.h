#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"
#include "support/trace_check.h"

/// What the ports of upstream's tests share. Each port has upstream's name; the suite names the
/// section of the inventory it belongs to.
namespace ahead::conformance {

using Tensors = std::vector<at::Tensor>;

/// Copies that require grad, where they can.
Tensors with_grad(const Tensors& inputs);

/// Compares the function with its compiled form on these inputs without grad, and on tensors that
/// are no leaves and require grad.
void expect_with_and_without_grad(const aot::FlatFunction& function, const Tensors& inputs,
                                  CompiledCheck check = {});

/// The slots of a graph's inputs or outputs, such as `MutatedInput 0, Output 0`.
std::string input_slots(const Graph& graph);
std::string output_slots(const Graph& graph);

/// The program of a stage: `trace`, `inference`, `partition.forward`, `partition.backward`.
template <class F>
Graph program(const Compiled<F>& compiled, const std::string& stage) {
  for (const Program& made : compiled.programs()) {
    if (made.name == stage) return *made.graph;
  }
  ADD_FAILURE() << "there is no program " << stage;
  return {};
}

/// Compiles a function over a flat list and calls it once, so that its programs are there.
Compiled<aot::FlatFunction> compiled_once(const aot::FlatFunction& function, const Tensors& inputs,
                                          Options options = {.fullgraph = true,
                                                             .confirm = Confirm::Never});

}  // namespace ahead::conformance
