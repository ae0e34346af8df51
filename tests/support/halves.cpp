#include "support/halves.h"

#include "support/eager.h"

namespace ahead {
namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Kind = Slot::Kind;

constexpr uint64_t kRunSeed = 23;

/// The same tensor on a copy of its storage.
Tensor copy_of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return tensor;
  at::NoGradGuard no_grad;
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const Tensor raw = at::empty({0}, tensor.options().dtype(at::kByte))
                         .set_(tensor.storage(), 0, {bytes}, {1})
                         .clone();
  return at::empty({0}, tensor.options())
      .set_(raw.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

/// Graphs run below autograd.
Tensors run(const Graph& graph, Tensors args) {
  return interpret(graph, std::move(args));
}

struct Problem {
  std::string text;
};

void expect(bool condition, const std::string& text) {
  if (!condition) throw Problem{text};
}

void expect_same(const Tensor& expected, const Tensor& actual, const std::string& what) {
  const std::string difference = tensor_difference(expected, actual);
  expect(difference.empty(), what + ": " + difference);
}

class HalvesCheck {
 public:
  HalvesCheck(const JointGraph& joint, const PartitionedGraphs& halves, const Tensors& args)
      : joint_(joint), halves_(halves) {
    for (size_t i = 0; i < args.size(); ++i) {
      const bool tangent = joint.inputs().at(i).slot.kind == Kind::Tangent;
      (tangent ? tangents_ : inputs_).push_back(copy_of(args[i]));
      all_.push_back(copy_of(args[i]));
    }
  }

  void run_all() {
    check_form();
    run_joint();
    run_forward();
    overwrite_mutated();
    run_backward();
    expect(random_state_.equal(random_state()), "other random numbers were drawn");
  }

 private:
  void check_form() {
    halves_.forward.verify();
    halves_.backward.verify();
    const auto& inputs = halves_.forward.inputs();
    expect(inputs.size() == inputs_.size(), "the forward takes another number of inputs");
    const size_t num_saved = halves_.saved.size();
    expect(halves_.backward.inputs().size() == num_saved + tangents_.size(),
           "the backward takes another number of inputs");
    const size_t first = halves_.forward.outputs().size() - num_saved;
    for (size_t i = 0; i < num_saved; ++i) {
      const Slot slot{Kind::Saved, static_cast<int32_t>(i)};
      expect(halves_.forward.outputs()[first + i].slot == slot, "the forward lacks " + slot.str());
      expect(halves_.backward.inputs()[i].slot == slot, "the backward lacks " + slot.str());
      expect(halves_.backward.inputs()[i].value->is_used(), slot.str() + " is not used");
    }
  }

  void run_joint() {
    torch::manual_seed(kRunSeed);
    expected_ = run(joint_, all_);
    random_state_ = random_state();
    for (size_t i = 0; i < joint_.outputs().size(); ++i) {
      (joint_.outputs()[i].slot.kind == Kind::GradOf ? gradients_ : results_).push_back(i);
    }
  }

  void run_forward() {
    torch::manual_seed(kRunSeed);
    saved_ = run(halves_.forward, inputs_);
    expect(saved_.size() == results_.size() + halves_.saved.size(), "the number of outputs");
    for (size_t i = 0; i < results_.size(); ++i) {
      expect_same(expected_[results_[i]], saved_[i],
                  "forward output " + halves_.forward.outputs()[i].slot.str());
    }
    forward_results_.assign(saved_.begin(), saved_.begin() + ptrdiff_t(results_.size()));
    saved_.erase(saved_.begin(), saved_.begin() + ptrdiff_t(results_.size()));
    for (size_t i = 0; i < saved_.size(); ++i) {
      const SavedValue& saved = halves_.saved[i];
      if (saved.input >= 0) {
        expect(saved_[i].is_alias_of(inputs_[static_cast<size_t>(saved.input)]), "a saved input");
      }
      if (saved.owned) expect_owned(i);
      if (saved.output >= 0) {
        expect(saved_[i].is_same(forward_results_[static_cast<size_t>(saved.output)]),
               "a saved output");
      }
    }
  }

  void expect_owned(size_t index) const {
    for (const Tensors* visible : {&inputs_, &forward_results_}) {
      for (const Tensor& tensor : *visible)
        expect(!tensor.defined() || !saved_[index].is_alias_of(tensor), "owned memory is visible");
    }
  }

  /// Writes something else than the new contents, so that a result that is only by chance the same
  /// is noticed as well.
  void overwrite_mutated() {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < results_.size(); ++i) {
      const Slot& slot = halves_.forward.outputs()[i].slot;
      if (slot.kind != Kind::MutatedInput) continue;
      expect_same_input(slot, joint_.outputs()[results_[i]].slot);
      inputs_[static_cast<size_t>(slot.index)].detach().fill_(77);
    }
  }

  void expect_same_input(const Slot& in_half, const Slot& in_joint) {
    const auto& a = halves_.forward.inputs().at(static_cast<size_t>(in_half.index)).slot;
    const auto& b = joint_.inputs().at(static_cast<size_t>(in_joint.index)).slot;
    expect(a == b, in_half.str() + " names another input");
  }

  void run_backward() {
    Tensors args = std::move(saved_);
    args.insert(args.end(), tangents_.begin(), tangents_.end());
    const Tensors actual = run(halves_.backward, std::move(args));
    expect(actual.size() == gradients_.size(), "the number of gradients");
    for (size_t i = 0; i < actual.size(); ++i) {
      const Slot& slot = halves_.backward.outputs()[i].slot;
      expect_same_input(slot, joint_.outputs()[gradients_[i]].slot);
      expect_same(expected_[gradients_[i]], actual[i], slot.str());
    }
  }

  const JointGraph& joint_;
  const PartitionedGraphs& halves_;
  Tensors inputs_, tangents_, all_, expected_, forward_results_, saved_;
  std::vector<size_t> results_, gradients_;  ///< positions among the joint graph's outputs
  Tensor random_state_;
};

}  // namespace

std::vector<Tensor> with_captured(const Graph& graph, const std::vector<Tensor>& args) {
  std::vector<Tensor> all;
  size_t next = 0;
  for (const Graph::Input& input : graph.inputs())
    all.push_back(input.slot.kind == Kind::Captured ? input.captured : args.at(next++));
  return all;
}

std::string halves_problem(const JointGraph& joint, const PartitionedGraphs& halves,
                           const std::vector<Tensor>& args) {
  try {
    HalvesCheck(joint, halves, args).run_all();
  } catch (const Problem& problem) {
    return problem.text;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::string results_difference(const Graph& expected, const Graph& actual,
                               const std::vector<Tensor>& args) {
  try {
    actual.verify();
    torch::manual_seed(kRunSeed);
    const Tensors before = run(expected, args);
    const Tensor state = random_state();
    torch::manual_seed(kRunSeed);
    const Tensors after = run(actual, args);
    expect(state.equal(random_state()), "other random numbers are drawn");
    expect(before.size() == after.size(), "the number of outputs differs");
    for (size_t i = 0; i < before.size(); ++i)
      expect_same(before[i], after[i], expected.outputs()[i].slot.str());
  } catch (const Problem& problem) {
    return problem.text;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace ahead
