#include "native/lower/rule.h"

#include <unordered_map>

namespace ahead::native {
namespace {

/// Whether kernels can read or write such a tensor.
bool is_for_kernels(const TensorMeta& meta) {
  return meta.device.is_cpu() && meta.is_fixed() && compute_type(meta.dtype).has_value() &&
         meta.numel() != 0;
}

}  // namespace

uint32_t Work::reduced(size_t result) const {
  uint32_t lacking = 0;
  for (size_t dim = 0; dim < space.size(); ++dim) {
    if (space[dim] != 1) lacking |= 1u << dim;
  }
  for (const int8_t dim : results[result]) {
    if (dim >= 0) lacking &= ~(1u << dim);
  }
  return lacking;
}

at::Scalar held_by(at::ScalarType dtype, const at::Scalar& number) {
  if (dtype != at::kBFloat16 && dtype != at::kHalf) return number;
  const auto narrow = static_cast<float>(number.toDouble());
  return dtype == at::kHalf ? static_cast<float>(at::Half(narrow))
                            : static_cast<float>(at::BFloat16(narrow));
}

bool Emitter::has(size_t argument) const {
  const Argument& arg = node_.args()[argument];
  return arg.is_value() || (arg.is_constant() && !arg.constant().isNone());
}

double Emitter::number(size_t argument) const {
  const at::Scalar number = node_.args()[argument].constant().toScalar();
  return number.isIntegral(/*includeBool=*/true) ? static_cast<double>(number.toLong())
                                                 : number.toDouble();
}

bool Emitter::flag(size_t argument) const {
  return node_.args()[argument].constant().toBool();
}

Formula Emitter::in(size_t argument) {
  const Type type = *compute_type(node_.result(0)->meta.dtype);
  const Argument& arg = node_.args()[argument];
  if (arg.is_value()) return load(argument).as(type);
  return {&builder(), builder().number(type, arg.constant().toScalar())};
}

Formula Emitter::raw(size_t argument, size_t like) {
  const Argument& arg = node_.args()[argument];
  if (arg.is_value()) return load(argument);
  const at::ScalarType dtype = node_.args()[like].value()->meta.dtype;
  const Type type = *compute_type(dtype);
  return {&builder(), builder().number(type, held_by(dtype, arg.constant().toScalar()))};
}

const Rule* find_rule(const Operator& op) {
  static const auto* rules = [] {
    auto* table = new std::unordered_map<const Operator*, const Rule*>;
    for (const Rule* family : {pointwise_rules, row_rules}) {
      for (const Rule* rule = family; rule->name != nullptr; ++rule) {
        const Operator* known = Operator::find(rule->name);
        if (known != nullptr) table->emplace(known, rule);
      }
    }
    return table;
  }();
  const auto found = rules->find(&op);
  return found == rules->end() ? nullptr : found->second;
}

std::optional<Work> work_of(const Node& node) {
  const Rule* rule = find_rule(node.op());
  if (rule == nullptr || node.has(Tag::Effect) || node.has(Tag::Random)) return std::nullopt;
  bool fits = true;
  node.for_each_operand([&](const Value* value) { fits = fits && is_for_kernels(value->meta); });
  for (const Value* result : node.results())
    fits = fits && (result == nullptr || is_for_kernels(result->meta));
  if (!fits || node.results().empty() || node.result(0) == nullptr) return std::nullopt;
  return rule->work(node);
}

}  // namespace ahead::native
