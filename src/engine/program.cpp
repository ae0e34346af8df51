#include "engine/program.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <chrono>

#include "engine/part_tracer.h"

namespace ahead::engine {
namespace {

/// Variants of one part beyond which its steps run as in eager.
constexpr int64_t most_variants = 8;

bool is_plain(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided && !gradient.is_conj() && !gradient.is_neg() &&
         !gradient._is_zerotensor() && !gradient.is_nested() && !gradient.requires_grad() &&
         !gradient.key_set().has(c10::DispatchKey::Python);
}

bool fits(const at::Tensor& tensor, const std::optional<TensorMeta>& expected) {
  if (!tensor.defined() || !expected) return tensor.defined() == expected.has_value();
  return is_plain(tensor) && tensor.scalar_type() == expected->dtype &&
         tensor.device() == expected->device && tensor.sizes() == expected->sizes &&
         tensor.strides() == expected->strides;
}

const at::Tensor& argument(const Part::Argument& which, const Gradients& gradients,
                           const Backward& backward) {
  return which.is_gradient ? gradients.at(which.index) : backward.inputs()[which.index];
}

/// Whether the part was made for gradients like those that wait.
bool is_for(const Part& part, const Gradients& gradients, const Backward& backward) {
  for (const Part::Expected& expected : part.expected) {
    if (!fits(gradients.at(expected.place), expected.gradient)) return false;
  }
  for (size_t i = 0; i < part.offsets.size(); ++i) {
    const at::Tensor& tensor = argument(part.arguments[i], gradients, backward);
    if (tensor.storage_offset() != part.offsets[i]) return false;
  }
  return true;
}

bool are_traceable(const Backward& backward, size_t begin, size_t end, const Gradients& gradients) {
  for (size_t i = begin; i < end; ++i) {
    const Step& step = backward.steps()[i];
    for (size_t place = step.first_place; place < step.first_place + step.num_places; ++place) {
      if (gradients.at(place).defined() && !is_plain(gradients.at(place))) return false;
    }
    for (size_t k = step.first_target; k < step.first_target + step.num_targets; ++k) {
      const int32_t target = backward.targets()[k];
      if (target == kNowhere) continue;
      const at::Tensor& waiting = gradients.at(static_cast<size_t>(target));
      if (waiting.defined() && !is_plain(waiting)) return false;
    }
  }
  return true;
}

/// Whether adding to this leaf's `.grad` could change what the part reads.
bool is_read(const at::Tensor& grad, const Part& part, const Gradients& gradients,
             const Backward& backward) {
  if (!grad.defined() || !grad.has_storage()) return false;
  if (grad.use_count() == 1 && grad.storage().use_count() == 1) return false;
  for (const Part::Argument& which : part.arguments) {
    if (argument(which, gradients, backward).is_alias_of(grad)) return true;
  }
  return false;
}

/// Eager looks at saved tensors when it reaches their node, and notices what hooks wrote to them.
/// Graphs read them at once. So where something was or will be written, the nodes run one by one.
bool is_unwritten(const Part& part, const Gradients& gradients, const Backward& backward) {
  for (const Part::Argument& which : part.arguments) {
    if (!which.is_gradient && !backward.is_unwritten(which.index)) return false;
  }
  for (size_t step : part.accumulations) {
    const auto& node =
        static_cast<const torch::autograd::AccumulateGrad&>(*backward.steps()[step].node);
    if (is_read(node.variable.grad(), part, gradients, backward)) return false;
  }
  return true;
}

std::string describe(const Backward& backward, size_t step, const NotTraceable& problem) {
  const std::string reason = problem.what();
  return backward.steps()[step].node->name() + " (step " + std::to_string(step) +
         ") runs as in eager: " + reason.substr(0, reason.find('\n'));
}

}  // namespace

Program::Program(const Backward& backward, aot::GraphCompiler compiler)
    : compiler_(std::move(compiler)) {
  kinds_.reserve(backward.steps().size());
  for (const Step& step : backward.steps()) kinds_.push_back(step.kind);
}

std::vector<std::shared_ptr<const Graph>> Program::graphs() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (const auto& part : parts_) graphs.push_back(part->graph);
  return graphs;
}

std::vector<at::Tensor> Program::run(Backward& backward, RunReport& report) {
  Gradients gradients(backward);
  for (size_t i = 0; i < backward.steps().size();) {
    const Part* part = is_traced(i) ? find(i, gradients, backward) : nullptr;
    if (part == nullptr && is_traced(i)) part = capture(i, gradients, backward, report);
    const size_t end = part == nullptr ? i + 1 : part->end;
    if (part != nullptr && is_unwritten(*part, gradients, backward)) {
      run_part(*part, gradients, backward);
    } else {
      for (size_t k = i; k < end; ++k) gradients.run_eagerly(backward.steps()[k]);
    }
    i = end;
  }
  return std::move(gradients.results());
}

bool Program::is_traced(size_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  return kinds_[step] == Step::Kind::Traced;
}

/// Whether no graph comes after this part.
bool Program::is_last(const Part& part) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::find(kinds_.begin() + static_cast<std::ptrdiff_t>(part.end), kinds_.end(),
                   Step::Kind::Traced) == kinds_.end();
}

size_t Program::end_of_part(size_t begin) const {
  const auto first = kinds_.begin() + static_cast<std::ptrdiff_t>(begin);
  return static_cast<size_t>(std::find(first, kinds_.end(), Step::Kind::Eager) - kinds_.begin());
}

const Part* Program::find(size_t begin, const Gradients& gradients, const Backward& backward) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& part : parts_) {
    if (part->begin == begin && is_for(*part, gradients, backward)) return part.get();
  }
  return nullptr;
}

const Part* Program::capture(size_t begin, const Gradients& gradients, Backward& backward,
                             RunReport& report) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto is_variant = [&](const auto& part) { return part->begin == begin; };
  if (std::count_if(parts_.begin(), parts_.end(), is_variant) >= most_variants) return nullptr;
  while (kinds_[begin] == Step::Kind::Traced) {
    const size_t end = end_of_part(begin);
    if (!are_traceable(backward, begin, end, gradients)) return nullptr;
    try {
      const auto start = std::chrono::steady_clock::now();
      Part part = trace_and_compile(begin, end, gradients, backward);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      report.capture_seconds += taken.count();
      ++report.compiles;
      parts_.push_back(std::make_unique<const Part>(std::move(part)));
      return parts_.back().get();
    } catch (const NotTraceable& problem) {
      const bool is_one = problem.step < end;
      report.problems.push_back(describe(backward, is_one ? problem.step : begin, problem));
      for (size_t i = is_one ? problem.step : begin; i < (is_one ? problem.step + 1 : end); ++i) {
        kinds_[i] = Step::Kind::Eager;
      }
    }
  }
  return nullptr;
}

Part Program::trace_and_compile(size_t begin, size_t end, const Gradients& gradients,
                                Backward& backward) {
  Part part = trace_part(backward, kinds_, begin, end, gradients);
  for (size_t i = begin; i < end; ++i) {
    if (kinds_[i] == Step::Kind::Accumulate) part.accumulations.push_back(i);
  }
  std::vector<TensorMeta> inputs;
  for (const Graph::Input& input : part.graph->inputs()) inputs.push_back(input.value->meta);
  part.run = compiler_(*part.graph, inputs);
  return part;
}

void Program::run_part(const Part& part, Gradients& gradients, Backward& backward) {
  const bool may_take = is_last(part);
  std::vector<at::Tensor> arguments;
  arguments.reserve(part.arguments.size());
  for (const Part::Argument& argument : part.arguments) {
    if (argument.is_gradient) {
      arguments.push_back(std::move(gradients.at(argument.index)));
    } else if (may_take) {
      arguments.push_back(std::move(backward.inputs()[argument.index]));
    } else {
      arguments.push_back(backward.inputs()[argument.index]);
    }
  }
  if (may_take) backward.inputs().clear();
  if (!backward.task().keep_graph_) {
    for (size_t i = part.begin; i < part.end; ++i) backward.steps()[i].node->release_variables();
  }
  const Gradients::Current current(gradients);
  std::vector<at::Tensor> outputs = part.run(std::move(arguments));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Part::Destination& destination = part.destinations[i];
    at::Tensor& place = destination.is_result ? gradients.results()[destination.index]
                                              : gradients.at(destination.index);
    place = std::move(outputs[i]);
  }
}

}  // namespace ahead::engine
