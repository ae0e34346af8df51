#include "ops/sample.h"

#include <algorithm>

namespace ahead::samples {
namespace {

constexpr uint64_t first_seed = 17;

std::string label_of(const Inputs& inputs, std::string text) {
  for (const Input& input : inputs) {
    if (!text.empty()) text += &input == inputs.data() ? ": " : "; ";
    text += input.str();
  }
  return text;
}

}  // namespace

const std::string& Sample::skipped(Check check) const {
  switch (check) {
    case Check::Metadata:
      return skip_metadata;
    case Check::Values:
      return skip_values;
    case Check::Gradients:
      break;
  }
  return skip_gradients;
}

Tensors Sample::make_arguments() const {
  Tensors arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_captured()) arguments.push_back(inputs[i].make(first_seed + i));
  }
  return arguments;
}

Fn Sample::make_function() const {
  Tensors captured(inputs.size());
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_captured()) continue;
    captured[i] = inputs[i].make(first_seed + i);
    any = true;
  }
  if (!any) return call;
  return [call = call, captured](const Tensors& arguments) {
    Tensors all = captured;
    auto next = arguments.begin();
    for (at::Tensor& tensor : all) {
      if (!tensor.defined()) tensor = *next++;
    }
    return call(all);
  };
}

SampleTable::Builder& SampleTable::Builder::random() {
  traits_.random = true;
  return *this;
}

SampleTable::Builder& SampleTable::Builder::not_differentiable() {
  traits_.differentiable = false;
  return *this;
}

SampleTable::Builder& SampleTable::Builder::reads_values() {
  traits_.reads_values = true;
  return *this;
}

SampleTable::Builder& SampleTable::Builder::gradient_reads_values() {
  traits_.gradient_reads_values = true;
  return *this;
}

SampleTable::Builder& SampleTable::Builder::rounds(std::string reason) {
  traits_.rounds = std::move(reason);
  return *this;
}

SampleTable::Builder& SampleTable::Builder::gradient_rounds(std::string reason) {
  traits_.gradient_rounds = std::move(reason);
  return *this;
}

SampleTable::Builder& SampleTable::Builder::skip(Check check, std::string reason) {
  switch (check) {
    case Check::Metadata:
      traits_.skip_metadata = std::move(reason);
      break;
    case Check::Values:
      traits_.skip_values = std::move(reason);
      break;
    case Check::Gradients:
      traits_.skip_gradients = std::move(reason);
      break;
  }
  return *this;
}

namespace {

/// Several families may sample one operator alike; a number then tells the samples apart.
std::string unique_label(const SampleTable::Op& op, const std::string& label) {
  std::string unique = label;
  auto taken = [&](const Sample& sample) { return sample.label == unique; };
  for (int number = 2; std::any_of(op.samples.begin(), op.samples.end(), taken); ++number) {
    unique = label + " #" + std::to_string(number);
  }
  return unique;
}

}  // namespace

SampleTable::Builder& SampleTable::Builder::add(std::string label, Inputs inputs, Fn call) {
  Op& op = table_->ops_[op_];
  Sample sample = traits_;
  sample.op = op.name;
  sample.label = unique_label(op, std::move(label));
  sample.inputs = std::move(inputs);
  sample.call = std::move(call);
  op.samples.push_back(std::move(sample));
  return *this;
}

SampleTable::Builder& SampleTable::Builder::add_all(const std::vector<Inputs>& sets, const Fn& call,
                                                    const std::string& label) {
  for (const Inputs& inputs : sets) add(label_of(inputs, label), inputs, call);
  return *this;
}

SampleTable::Builder& SampleTable::Builder::add_in_place(const std::string& label,
                                                         const Inputs& inputs, const Fn& write) {
  Inputs stacked = inputs;
  stacked[0] = stacked[0].stacked();
  add(label + ", argument", inputs, write);
  add(label + ", intermediate", inputs, [write](Tensors in) {
    in[0] = in[0].clone();
    write(in);
    return Tensors{in[0]};
  });
  add(label + ", half of an argument", stacked, [write](Tensors in) {
    const at::Tensor whole = in[0];
    in[0] = whole.select(0, 1);
    write(in);
    return Tensors{whole};
  });
  return add(label + ", half of an intermediate", inputs, [write](Tensors in) {
    const at::Tensor whole = at::stack({in[0], in[0]});
    in[0] = whole.select(0, 1);
    write(in);
    return Tensors{whole};
  });
}

SampleTable::Builder& SampleTable::Builder::add_all_in_place(const std::vector<Inputs>& sets,
                                                             const Fn& write,
                                                             const std::string& label) {
  for (const Inputs& inputs : sets) add_in_place(label_of(inputs, label), inputs, write);
  return *this;
}

SampleTable::Builder SampleTable::op(const std::string& name) {
  const auto found =
      std::find_if(ops_.begin(), ops_.end(), [&](const Op& op) { return op.name == name; });
  if (found == ops_.end()) {
    ops_.push_back({name, {}});
    return Builder(*this, ops_.size() - 1);
  }
  return Builder(*this, found - ops_.begin());
}

}  // namespace ahead::samples
