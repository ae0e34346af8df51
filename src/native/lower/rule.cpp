#include "native/lower/rule.h"

#include <algorithm>
#include <unordered_map>

#include "native/views.h"
#include "ops/facts/facts.h"

namespace ahead::native {
namespace {

/// Whether kernels can read or write such a tensor.
bool is_for_kernels(const TensorMeta& meta) {
  return meta.device.is_cpu() && meta.is_fixed() && compute_type(meta.dtype).has_value() &&
         meta.numel() != 0;
}

bool is_unused(const Value& value) {
  return value.users().empty() && value.output_uses() == 0;
}

}  // namespace

uint32_t Work::reduced(size_t result) const {
  uint32_t lacking = 0;
  for (size_t dim = 0; dim < space.size(); ++dim) {
    if (space[dim] != 1) lacking |= 1u << dim;
  }
  for (const Follows& follows : results[result]) {
    for (int i = 0; !follows.is_none() && i < follows.count; ++i)
      lacking &= ~(1u << (follows.dim + i));
  }
  return lacking;
}

bool Work::is_written_in_parts(const Node& node, size_t result) const {
  const Dims& sizes = node.result(result)->meta.sizes;
  for (size_t dim = 0; dim < results[result].size(); ++dim) {
    if (results[result][dim].is_none() && sizes[dim] != 1) return true;
  }
  return false;
}

at::Scalar held_by(at::ScalarType dtype, const at::Scalar& number) {
  if (dtype != at::kBFloat16 && dtype != at::kHalf) return number;
  const auto narrow = static_cast<float>(number.toDouble());
  return dtype == at::kHalf ? static_cast<float>(at::Half(narrow))
                            : static_cast<float>(at::BFloat16(narrow));
}

std::optional<at::Scalar> constant_of(const Value& value) {
  static const Operator* const full = Operator::find("aten.full");
  const Node* node = owner_of(&value)->producer();
  if (node == nullptr || &node->op() != full || !node->args()[1].is_constant())
    return std::nullopt;
  const TensorMeta& meta = node->result()->meta;
  if (!is_for_kernels(meta) || meta.numel() != 1) return std::nullopt;
  return held_by(meta.dtype, node->args()[1].constant().toScalar());
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

Formula Emitter::at_position(Formula value, Formula place) {
  // Throws where columns are not counted as that dimension is.
  position();
  return {&builder(), builder().at_column(value.id, place.id)};
}

const Rule* find_rule(const Operator& op) {
  static const auto* rules = [] {
    auto* table = new std::unordered_map<const Operator*, const Rule*>;
    for (const Rule* family : {pointwise_rules, row_rules, index_rules, product_rules}) {
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

std::string why_left(const Node& node) {
  if (node.has(Tag::Effect) || node.has(Tag::Random)) return "it is random, or has an effect";
  const Rule* rule = find_rule(node.op());
  if (rule == nullptr) return "there is no rule for it";
  bool fits = true;
  const auto look = [&](const Value* value) {
    fits = fits && (value == nullptr || is_for_kernels(value->meta));
  };
  node.for_each_operand(look);
  for (const Value* result : node.results()) look(result);
  return fits ? rule->why_left
              : "kernels are for tensors on the CPU of common dtypes that are not empty";
}

std::optional<Work> work_of(const Node& node) {
  const Rule* rule = find_rule(node.op());
  if (rule == nullptr || node.has(Tag::Random)) return std::nullopt;
  // What writes to tensors without saying so has a rule for the calls in which it does not.
  if (node.has(Tag::Effect) && ops::facts(node.op()).hidden_writes.empty()) return std::nullopt;
  bool fits = !node.results().empty() && node.result(0) != nullptr;
  node.for_each_operand([&](const Value* value) { fits = fits && is_for_kernels(value->meta); });
  if (!fits || !is_for_kernels(node.result(0)->meta)) return std::nullopt;
  auto work = rule->work(node);
  for (size_t i = 0; work && i < node.results().size(); ++i) {
    const Value* result = node.result(i);
    if (result == nullptr) continue;
    fits = fits && (i < work->results.size() ? is_for_kernels(result->meta) : is_unused(*result));
    if (result->meta.offset != Dim(0)) fits = fits && !is_found_by_place(*result);
  }
  return fits ? std::move(work) : std::nullopt;
}

}  // namespace ahead::native
