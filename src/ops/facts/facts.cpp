#include "ops/facts/facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ops/facts/fact_table.h"

namespace ahead::ops {
namespace {

constexpr std::string_view pytorch_spaces[] = {"aten", "prims", "prim"};
/// What comes with LibTorch besides, and Ahead's own operators: their schemas show their effects.
constexpr std::string_view trusted_spaces[] = {"quantized", "_quantized", "mkldnn",  "onednn",
                                               "mkl",       "ahead",      "inductor"};

bool is_in(const Operator& op, std::span<const std::string_view> spaces) {
  const std::string_view name = op.name();
  return std::find(spaces.begin(), spaces.end(), name.substr(0, name.find('.'))) != spaces.end();
}

using Rows = std::unordered_map<std::string_view, const FactRow*>;

const Rows& rows_by_name() {
  static const Rows* rows = [] {
    auto* map = new Rows;
    for (auto* row = fact_table_begin(); row != fact_table_end(); ++row)
      map->emplace(row->name, row);
    return map;
  }();
  return *rows;
}

/// For operators whose functional form has another name: from that name to the row.
const Rows& rows_by_functional() {
  static const Rows* rows = [] {
    auto* map = new Rows;
    for (auto* row = fact_table_begin(); row != fact_table_end(); ++row) {
      if (row->more.functional != nullptr) map->emplace(row->more.functional, row);
    }
    return map;
  }();
  return *rows;
}

const FactRow no_row{"", OpClass::Opaque};

/// The name of the operator that does the same without writing: `mul_` and `__imul__` to `mul`,
/// `__mul__`. The name itself for others.
std::string functional_name(const std::string& name) {
  const bool dunder = name.size() > 4 && name.ends_with("__");
  if (dunder && name.starts_with("__i")) return "__" + name.substr(3);
  if (!dunder && name.ends_with("_")) return name.substr(0, name.size() - 1);
  return name;
}

std::string in_place_name(const std::string& name) {
  const bool dunder = name.size() > 4 && name.ends_with("__");
  return dunder ? "__i" + name.substr(2) : name + "_";
}

const FactRow* find_row(const std::string& name, const std::string& overload) {
  for (const std::string& base : {name, functional_name(name)}) {
    for (const std::string& full : {std::string(base).append(".").append(overload), base}) {
      auto found = rows_by_name().find(full);
      if (found != rows_by_name().end()) return found->second;
    }
  }
  return nullptr;
}

bool is_tensor_like(const c10::Argument& argument) {
  const std::string type = argument.type()->str();
  return type.find("Tensor") != std::string::npos;
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Whether one operator can stand for the other, given the same arguments.
bool same_arguments(const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  return std::equal(
      a.arguments().begin(), a.arguments().end(), b.arguments().begin(), b.arguments().end(),
      [](const c10::Argument& x, const c10::Argument& y) { return *x.type() == *y.type(); });
}

/// Computes the facts about one operator of the dispatcher.
class Deriver {
 public:
  Deriver(const Operator& op, Declared declared)
      : op_(op), schema_(op.schema()), declared_(declared) {
    const std::string& qualified = schema_.name();
    if (!qualified.starts_with("aten::")) return;
    aten_name_ = qualified.substr(6);
    if (const FactRow* row = find_row(aten_name_, schema_.overload_name())) row_ = row;
  }

  OpFacts run() {
    derive_effects();
    derive_view();
    derive_class();
    derive_cost();
    derive_recompute();
    derive_twins();
    return std::move(facts_);
  }

 private:
  bool has(at::Tag tag) const { return op_.handle().hasTag(tag); }
  bool in_table() const { return row_ != &no_row; }

  void derive_effects() {
    const auto& arguments = schema_.arguments();
    facts_.random = has(at::Tag::nondeterministic_seeded) && !row_->more.not_random;
    facts_.random_if = row_->more.random_if;
    facts_.data_dependent = row_->more.reads;
    for (int8_t index : row_->more.writes) {
      if (index >= 0) facts_.hidden_writes.push_back(static_cast<uint8_t>(index));
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (writes(arguments[i])) facts_.writes.push_back(static_cast<uint8_t>(i));
    }
    const bool is_void = schema_.returns().empty();
    const bool writes_any = !facts_.hidden_writes.empty() || !facts_.writes.empty();
    const bool acts = is_custom(op_) && !writes_any && (is_void || takes_object());
    facts_.is_known_effect =
        declared_ == Declared::Effect || (declared_ == Declared::Nothing && acts);
    facts_.effectful = facts_.is_known_effect || is_void || writes_any ||
                       (declared_ == Declared::Nothing && has_effects_of_its_own());
    const bool is_composite =
        op_.handle().hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    facts_.is_whole = is_composite && facts_.is_known_effect && !is_in(op_, trusted_spaces);
  }

  bool takes_object() const {
    const auto& arguments = schema_.arguments();
    return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
      return argument.type()->kind() == c10::TypeKind::ClassType;
    });
  }

  bool has_effects_of_its_own() const { return row_->more.effect || has_unknown_effects(); }

  /// A custom operator of which only the schema is known may have any effect, so it is neither
  /// dropped nor merged nor run again. One with a tag for compilers is pure.
  bool has_unknown_effects() const {
    if (has(at::Tag::pt2_compliant_tag) || has(at::Tag::pointwise)) return false;
    return is_custom(op_) && !is_in(op_, trusted_spaces);
  }

  void derive_view() {
    for (const c10::Argument& result : schema_.returns()) {
      if (result.alias_info() == nullptr || result.alias_info()->isWrite()) continue;
      const bool list = result.type()->kind() == c10::TypeKind::ListType;
      facts_.view = list ? ViewKind::MultiView : ViewKind::View;
    }
    if (has(at::Tag::maybe_aliasing_or_mutating)) facts_.view = ViewKind::MaybeAlias;
    if (row_->more.view && !facts_.effectful) facts_.view = *row_->more.view;
  }

  void derive_class() {
    const auto& arguments = schema_.arguments();
    if (in_table()) {
      facts_.op_class = row_->op_class;
    } else if (has(at::Tag::pointwise) || aten_name_.starts_with("_foreach_")) {
      facts_.op_class = OpClass::Pointwise;
    } else if (has(at::Tag::reduction)) {
      facts_.op_class = OpClass::Reduction;
    } else if (has(at::Tag::view_copy)) {
      facts_.op_class = OpClass::Copy;
    } else if (facts_.view == ViewKind::View || facts_.view == ViewKind::MultiView ||
               has(at::Tag::inplace_view)) {
      facts_.op_class = OpClass::View;
    } else if (schema_.returns().size() == 1 && is_tensor_like(schema_.returns()[0]) &&
               std::none_of(arguments.begin(), arguments.end(), is_tensor_like)) {
      facts_.op_class = OpClass::Factory;
    }
  }

  void derive_cost() {
    facts_.flops = row_->more.flops;
    const bool free = facts_.op_class == OpClass::View || facts_.op_class == OpClass::Factory;
    facts_.cost = facts_.flops != FlopFormula::None ? Cost::Compute
                  : free                            ? Cost::Free
                                                    : Cost::Memory;
    if (row_->more.cost) facts_.cost = *row_->more.cost;
  }

  void derive_recompute() {
    if (facts_.random && facts_.random_if < 0) {
      set_recompute(Recompute::Never, "random: a second run would draw other numbers");
    } else if (facts_.effectful) {
      set_recompute(Recompute::Never, "has an effect that must happen once");
    } else {
      recompute_by_class();
      if (row_->more.recompute) facts_.recompute = *row_->more.recompute;
      if (row_->more.why != nullptr) facts_.recompute_reason = row_->more.why;
    }
  }

  void recompute_by_class() {
    switch (facts_.op_class) {
      case OpClass::View:
        return set_recompute(Recompute::Free, "a view: moves no data");
      case OpClass::Factory:
        return set_recompute(Recompute::Free, "made from numbers: reads no data");
      case OpClass::Pointwise:
        return set_recompute(Recompute::Cheap, "pointwise: fuses into its users");
      case OpClass::Copy:
        return set_recompute(Recompute::Cheap, "a copy: one pass over memory");
      case OpClass::GatherScatter:
        return set_recompute(Recompute::Cheap, "moves elements: one pass over memory");
      case OpClass::Reduction:
        return set_recompute(Recompute::Expensive,
                             "a reduction: small to keep, reads all of its input");
      case OpClass::Normalisation:
        return set_recompute(Recompute::Expensive,
                             "a normalisation: reads its input more than once");
      case OpClass::MatMul:
      case OpClass::Convolution:
      case OpClass::Attention:
        return set_recompute(Recompute::Expensive, "bound by arithmetic");
      case OpClass::Opaque:
        return facts_.flops != FlopFormula::None
                   ? set_recompute(Recompute::Expensive, "bound by arithmetic")
                   : set_recompute(Recompute::Expensive, "a kernel of unknown cost");
    }
  }

  void set_recompute(Recompute recompute, const char* reason) {
    facts_.recompute = recompute;
    facts_.recompute_reason = reason;
  }

  void derive_twins() {
    if (aten_name_.empty()) return;
    if (facts_.effectful) {
      facts_.functional = row_->more.functional != nullptr
                              ? functional_from_row()
                              : same_overload(functional_name(aten_name_));
      return;
    }
    facts_.in_place = same_overload(in_place_name(aten_name_));
    if (facts_.in_place != nullptr) return;
    std::string full = aten_name_;
    if (!schema_.overload_name().empty()) full += "." + schema_.overload_name();
    auto found = rows_by_functional().find(full);
    if (found == rows_by_functional().end()) return;
    const std::string_view writer = found->second->name;
    if (writer.substr(0, writer.find('.')).ends_with('_')) {
      facts_.in_place = Operator::find("aten." + std::string(writer));
    }
  }

  /// Null for the `out` forms: the row holds for them too, but its functional form does not.
  const Operator* functional_from_row() const {
    const Operator* twin = Operator::find(std::string("aten.") + row_->more.functional);
    const size_t count = schema_.arguments().size();
    return twin != nullptr && twin->schema().arguments().size() == count ? twin : nullptr;
  }

  const Operator* same_overload(const std::string& name) const {
    if (name == aten_name_) return nullptr;
    auto handle =
        c10::Dispatcher::singleton().findSchema({"aten::" + name, schema_.overload_name()});
    if (!handle || !same_arguments(handle->schema(), schema_)) return nullptr;
    return &Operator::of(*handle);
  }

  const Operator& op_;
  const c10::FunctionSchema& schema_;
  const Declared declared_;
  std::string aten_name_;  // empty for operators outside aten
  const FactRow* row_ = &no_row;
  OpFacts facts_;
};

/// The operator of which this one is the form that says which state it draws from (see
/// random/random_form.h); null: it is none such.
const Operator* find_drawn(const Operator& op) {
  constexpr std::string_view prefix = "ahead.random.";
  const std::string_view name = op.name();
  return name.starts_with(prefix) ? Operator::find(name.substr(prefix.size())) : nullptr;
}

/// The state decides the numbers, so that it may run twice.
OpFacts facts_of_form(const OpFacts& drawn) {
  OpFacts known;
  known.op_class = drawn.op_class == OpClass::Factory ? OpClass::Pointwise : drawn.op_class;
  known.flops = drawn.flops;
  known.cost = drawn.cost == Cost::Free ? Cost::Memory : drawn.cost;
  known.recompute = known.op_class == OpClass::Pointwise ? Recompute::Cheap : Recompute::Expensive;
  known.recompute_reason = "random: its state decides the numbers, so that it draws them again";
  return known;
}

OpFacts derive(const Operator& op, Declared declared = Declared::Nothing) {
  if (!op.in_dispatcher()) return {};
  if (const Operator* drawn = find_drawn(op)) return facts_of_form(facts(*drawn));
  return Deriver(op, declared).run();
}

/// Grows without moving what it holds, so that readers need no lock. Entries live for ever.
class Cache {
 public:
  const OpFacts& get(const Operator& op) {
    std::atomic<const OpFacts*>& entry = slot(op.id());
    if (const OpFacts* known = entry.load(std::memory_order_acquire)) return *known;
    auto fresh = std::make_unique<const OpFacts>(derive(op));
    const OpFacts* expected = nullptr;
    if (!entry.compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel))
      return *expected;
    return *fresh.release();
  }

  bool replace(const Operator& op, Declared declared) {
    std::lock_guard<std::mutex> lock(replacing_);
    const OpFacts* fresh = new OpFacts(derive(op, declared));
    // Not freed: others may be reading it.
    const OpFacts* before = slot(op.id()).exchange(fresh, std::memory_order_acq_rel);
    return before != nullptr && (before->effectful != fresh->effectful ||
                                 before->is_known_effect != fresh->is_known_effect);
  }

 private:
  static constexpr size_t kChunk = 1024;
  using Chunk = std::array<std::atomic<const OpFacts*>, kChunk>;

  std::atomic<const OpFacts*>& slot(uint32_t id) {
    std::atomic<Chunk*>& chunk = chunks_.at(id / kChunk);
    Chunk* known = chunk.load(std::memory_order_acquire);
    if (known == nullptr) {
      auto fresh = std::make_unique<Chunk>();
      if (chunk.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) {
        known = fresh.release();
      }
    }
    return (*known)[id % kChunk];
  }

  std::array<std::atomic<Chunk*>, kChunk> chunks_{};
  std::mutex replacing_;
};

Cache& cache() {
  static Cache* cache = new Cache;
  return *cache;
}

}  // namespace

bool is_custom(const Operator& op) {
  return !is_in(op, pytorch_spaces) && find_drawn(op) == nullptr;
}

std::optional<size_t> written_only_with(const Operator& op, size_t written) {
  const auto& arguments = op.schema().arguments();
  if (arguments[written].name() != "grads") return std::nullopt;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "grad_scale") return i;
  }
  return std::nullopt;
}

const OpFacts& facts(const Operator& op) {
  return cache().get(op);
}

bool declare(const Operator& op, Declared declared) {
  return cache().replace(op, declared);
}

}  // namespace ahead::ops
