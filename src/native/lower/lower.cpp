#include "native/lower/lower.h"

#include <algorithm>

#include "ahead/errors.h"
#include "native/fuse/join_results.h"
#include "native/lower/nest.h"

namespace ahead::native {
namespace {

/// Fills the kernel of a graph.
class Lowering {
 public:
  Lowering(const Graph& graph, bool strict)
      : graph_(graph),
        nests_(graph),
        builder_(kernel_, strict),
        terms_(graph.value_capacity(), -1) {
    kernel_.strict = strict;
    for (const Node& node : graph.nodes()) {
      if (const Member* member = nests_.member(&node)) members_.push_back(member);
    }
  }

  Kernel run() {
    std::string reason;
    std::optional<Nest> nest;
    if (!members_.empty()) nest = nests_.join(members_, &reason);
    if (!nest)
      throw InternalError("native",
                          "these operators share no loops: " + reason + "\n" + graph_.str());
    nest_ = std::move(*nest);
    for (const Axis axis : nest_.rows) kernel_.rows.push_back(nests_.size(axis));
    for (const Axis axis : nest_.columns) kernel_.columns.push_back(nests_.size(axis));
    for (const Member* member : members_) emit(*member);
    drop_unused_terms();
    merge_axes(kernel_.rows, &Buffer::rows);
    merge_axes(kernel_.columns, &Buffer::columns);
    flatten();
    return std::move(kernel_);
  }

 private:
  class MemberEmitter;
  using AxisStrides = std::vector<std::pair<Axis, int64_t>>;

  void emit(const Member& member);

  Sizes along(const AxisStrides& strides, const AxisList& axes) const {
    Sizes found;
    for (const Axis axis : axes) {
      const auto at = std::find_if(strides.begin(), strides.end(),
                                   [&](const auto& one) { return one.first == axis; });
      found.push_back(at == strides.end() ? 0 : at->second);
    }
    return found;
  }

  int32_t add_buffer(at::ScalarType dtype, bool is_result, size_t index, const AxisStrides& strides,
                     int64_t picked = 0, int64_t offset = 0) {
    Buffer buffer{dtype,
                  is_result,
                  static_cast<int32_t>(index),
                  along(strides, nest_.rows),
                  along(strides, nest_.columns),
                  picked,
                  offset};
    std::vector<Buffer>& known = kernel_.buffers;
    for (size_t i = 0; i < known.size(); ++i) {
      if (known[i] == buffer) return static_cast<int32_t>(i);
    }
    known.push_back(std::move(buffer));
    return static_cast<int32_t>(known.size()) - 1;
  }

  /// An element of an argument: the one that lies in the space or, where `place` is given, the one
  /// there along a dimension whose elements are so far apart; counted from one at this offset.
  TermId load(const Member& member, size_t argument, Type type, TermId place = -1,
              int64_t picked = 0, int64_t offset = 0) {
    const Value* value = member.node->args()[argument].value();
    if (value->producer() != nullptr)
      throw InternalError("native", "a sum is needed before all rows are done:\n" + graph_.str());
    Term term;
    term.op = place < 0 ? Op::Load : Op::LoadAt;
    if (place >= 0) term.operands = {place};
    term.type = type;
    term.buffer = add_buffer(value->meta.dtype, false, value->index(),
                             nests_.strides_of_argument(member, argument), picked, offset);
    const auto varies = [](int64_t stride) { return stride != 0; };
    const Buffer& buffer = kernel_.buffers[static_cast<size_t>(term.buffer)];
    term.by_row = std::any_of(buffer.rows.begin(), buffer.rows.end(), varies);
    term.by_column = std::any_of(buffer.columns.begin(), buffer.columns.end(), varies);
    return builder_.add(std::move(term));
  }

  /// The value at the end of a chain of views inside the graph.
  const Value* source_of(const Value* value) const {
    while (value->producer() != nullptr && nests_.member(value->producer()) == nullptr)
      value = value->producer()->args()[0].value();
    return value;
  }

  /// Calls write(buffer) for each output of the graph that this result is, or is a part of; with the
  /// elements at one place along a dimension, if that is given.
  template <class Write>
  void for_each_output(const Member& member, size_t result, size_t dim, int64_t place,
                       const Write& write) {
    const Value* value = member.node->result(result);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Value* output = graph_.outputs()[i].value;
      const auto write_to = [&](const TensorMeta& meta) {
        const int64_t offset =
            meta.offset.fixed() + (place == 0 ? 0 : at::IntArrayRef(meta.strides)[dim] * place);
        write(add_buffer(value->meta.dtype, true, i,
                         nests_.strides_of_result(member, result, meta), 0, offset));
      };
      if (output == value) {
        TensorMeta own = value->meta;
        own.offset = 0;
        write_to(own);
      }
      const Node* maker = output->producer();
      if (maker == nullptr || nests_.member(maker) != nullptr) continue;
      for (const JoinedPart& part : joined_parts(*maker)) {
        if (maker->args()[0].list()[part.operand].value() == value) write_to(part.meta);
      }
    }
  }

  bool are_columns(const AxisList& axes) const {
    const AxisList& columns = nest_.columns;
    return axes.size() == columns.size() &&
           std::all_of(axes.begin(), axes.end(), [&](Axis axis) { return is_column(axis); });
  }
  bool is_column(Axis axis) const {
    return std::find(nest_.columns.begin(), nest_.columns.end(), axis) != nest_.columns.end();
  }

  void drop_unused_terms();
  void merge_axes(Sizes& sizes, Sizes Buffer::*strides);
  void flatten();

  const Graph& graph_;
  Nests nests_;
  std::vector<const Member*> members_;
  Nest nest_;
  Kernel kernel_;
  TermBuilder builder_;
  std::vector<TermId> terms_;  ///< by value: what it is; -1: not known inside the kernel
};

class Lowering::MemberEmitter final : public Emitter {
 public:
  MemberEmitter(Lowering& lowering, const Member& member)
      : Emitter(*member.node), lowering_(lowering), member_(member) {}

  bool wants(size_t result) const override { return node().result(result) != nullptr; }

  void out(size_t result, Formula value) override {
    const Value* target = node().result(result);
    if (target == nullptr) return;
    const TermId term = rounded(value, target->meta.dtype);
    lowering_.terms_[target->id()] = term;
    lowering_.for_each_output(member_, result, 0, 0, [&](int32_t buffer) {
      lowering_.kernel_.stores.push_back({term, buffer});
    });
  }

  void out_sum(size_t result, Formula value, double divisor) override {
    if (node().result(result) == nullptr) return;
    const AxisList gone = lowering_.nests_.axes_of(member_, member_.work.reduced(result));
    if (gone.empty()) return out(result, divisor == 1 ? value : value / divisor);
    if (const auto sum = sum_along_row(result, gone, value))
      return out(result, divisor == 1 ? *sum : sum->apply(Op::Div, sum->number(divisor)));
    add_sum(result, gone, 0, 0, value, divisor);
  }

  void out_sum_at(size_t result, size_t dim, int64_t place, Formula value) override {
    const Value* target = node().result(result);
    if (target == nullptr) return;
    if (target->meta.sizes[dim] == 1) return out_sum(result, value, 1);
    const AxisList gone = lowering_.nests_.axes_of(member_, member_.work.reduced(result));
    const auto sum = gone.empty() ? value : sum_along_row(result, gone, value);
    if (!sum) return add_sum(result, gone, dim, place, value, 1);
    const TermId term = rounded(*sum, target->meta.dtype);
    lowering_.for_each_output(member_, result, dim, place, [&](int32_t buffer) {
      lowering_.kernel_.stores.push_back({term, buffer});
    });
  }

  void out_sum_of_rows(size_t result, Formula value, std::optional<Formula> divisor) override {
    if (node().result(result) == nullptr) return;
    using Sum = Kernel::Sum;
    std::vector<Sum>& sums = lowering_.kernel_.sums;
    lowering_.for_each_output(member_, result, 0, 0, [&](int32_t buffer) {
      int32_t over = -1;
      if (divisor) {
        over = static_cast<int32_t>(sums.size());
        sums.push_back({Sum::Kind::Rows, divisor->id, -1, 1});
      }
      sums.push_back({Sum::Kind::Rows, value.id, buffer, 1, over});
    });
  }

  void refuse(Formula wrong, void (*fail)()) override {
    Kernel& kernel = lowering_.kernel_;
    kernel.demands.push_back({static_cast<int32_t>(kernel.sums.size()), fail});
    kernel.sums.push_back({Kernel::Sum::Kind::All, wrong.as(Type::F32).id, -1, 1});
  }

  Formula index(size_t argument, int64_t size, std::optional<int64_t> other) override {
    const Value* value = node().args()[argument].value();
    lowering_.kernel_.bounds.push_back({static_cast<int32_t>(value->index()), size, other});
    return {&builder(), lowering_.load(member_, argument, Type::I32)};
  }

  Formula at(size_t argument, size_t dim, Formula place) override {
    const TensorMeta& meta = node().args()[argument].value()->meta;
    return {&builder(), lowering_.load(member_, argument, *compute_type(meta.dtype), place.id,
                                       at::IntArrayRef(meta.strides)[dim])};
  }

  Formula position() override {
    if (lowering_.nests_.axes_of(member_, member_.work.row_dims) != lowering_.nest_.columns)
      throw InternalError("native", "positions are counted along other columns.");
    Term term;
    term.op = Op::Position;
    term.type = Type::I32;
    term.by_column = true;
    return {&builder(), builder().add(std::move(term))};
  }

  Formula element(size_t argument, size_t dim, int64_t place) override {
    const Value* value = node().args()[argument].value();
    const Type type = *compute_type(value->meta.dtype);
    if (const auto constant = constant_of(*value))
      return {&builder(), builder().number(type, *constant)};
    const int64_t offset = at::IntArrayRef(value->meta.strides)[dim] * place;
    return {&builder(), lowering_.load(member_, argument, type, -1, 0, offset)};
  }

  double row_length() const override {
    int64_t length = 1;
    for (size_t dim = 0; dim < member_.work.space.size(); ++dim) {
      if ((member_.work.row_dims >> dim & 1) != 0) length *= member_.work.space[dim];
    }
    return static_cast<double>(length);
  }

 protected:
  TermBuilder& builder() override { return lowering_.builder_; }

  Formula load(size_t argument) override {
    const Value* value = node().args()[argument].value();
    const Type type = *compute_type(value->meta.dtype);
    if (const auto constant = constant_of(*value))
      return {&builder(), builder().number(type, *constant)};
    const TermId known = lowering_.terms_[lowering_.source_of(value)->id()];
    return {&builder(), known >= 0 ? known : lowering_.load(member_, argument, type)};
  }

 private:
  TermId rounded(Formula value, at::ScalarType dtype) {
    const Type type = *compute_type(dtype);
    const TermId term = value.as(type).id;
    const bool is_narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
    // One instruction for this product and the next operator's sum would give other numbers than a
    // kernel that has the product alone, and a backward might decide otherwise than its forward.
    if (!is_narrow && is_float(type) && builder().term(term).op == Op::Mul)
      return builder().apply(Op::Rounded, type, {term});
    if (!is_narrow) return term;
    Term rounding;
    rounding.op = Op::RoundTo;
    rounding.dtype = dtype;
    rounding.operands = {term};
    return builder().add(std::move(rounding));
  }

  /// The sum over these axes, if they are the columns. Without rows that is a sum of all, unless it
  /// is needed here.
  std::optional<Formula> sum_along_row(size_t result, const AxisList& gone, Formula value) {
    if (!lowering_.are_columns(gone) || (lowering_.nest_.rows.empty() && !is_needed(result)))
      return std::nullopt;
    return row_sum(value);
  }

  /// A sum that is known when all rows are done.
  void add_sum(size_t result, const AxisList& gone, size_t dim, int64_t place, Formula value,
               double divisor) {
    const auto num_columns = static_cast<size_t>(std::count_if(
        gone.begin(), gone.end(), [&](Axis axis) { return lowering_.is_column(axis); }));
    const AxisList own = lowering_.nests_.axes_of(member_, ~0u);
    const bool walks_columns =
        std::any_of(own.begin(), own.end(), [&](Axis axis) { return lowering_.is_column(axis); });
    using Kind = Kernel::Sum::Kind;
    const Nest& nest = lowering_.nest_;
    const bool has_all_rows = gone.size() - num_columns == nest.rows.size();
    Kind kind = Kind::EachElement;
    if (has_all_rows && num_columns == 0) kind = walks_columns ? Kind::EachColumn : Kind::Rows;
    if (has_all_rows && num_columns == nest.columns.size()) kind = Kind::All;
    lowering_.for_each_output(member_, result, dim, place, [&](int32_t buffer) {
      lowering_.kernel_.sums.push_back({kind, value.id, buffer, divisor});
    });
  }

  bool is_needed(size_t result) const { return !node().result(result)->users().empty(); }

  Lowering& lowering_;
  const Member& member_;
};

void Lowering::emit(const Member& member) {
  const Rule& rule = *find_rule(member.node->op());
  MemberEmitter emitter(*this, member);
  rule.emit(emitter);
  std::string_view name = rule.name;
  name.remove_prefix(name.find('.') + 1);
  name = name.substr(0, name.find('.'));
  while (!name.empty() && name.front() == '_') name.remove_prefix(1);
  if (kernel_.name.size() < 60)
    kernel_.name += (kernel_.name.empty() ? "" : "_") + std::string(name);
}

void Lowering::drop_unused_terms() {
  std::vector<bool> used(kernel_.terms.size());
  for (const Kernel::Store& store : kernel_.stores) used[static_cast<size_t>(store.term)] = true;
  for (const Kernel::Sum& sum : kernel_.sums) used[static_cast<size_t>(sum.term)] = true;
  for (size_t i = used.size(); i-- > 0;) {
    if (!used[i]) continue;
    for (const TermId operand : kernel_.terms[i].operands)
      used[static_cast<size_t>(operand)] = true;
  }
  std::vector<TermId> place(used.size(), -1);
  std::vector<bool> read(kernel_.buffers.size());
  std::vector<Term> kept;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    place[i] = static_cast<TermId>(kept.size());
    kept.push_back(std::move(kernel_.terms[i]));
    for (TermId& operand : kept.back().operands) operand = place[static_cast<size_t>(operand)];
    if (kept.back().buffer >= 0) read[static_cast<size_t>(kept.back().buffer)] = true;
  }
  kernel_.terms = std::move(kept);
  for (Kernel::Store& store : kernel_.stores) store.term = place[static_cast<size_t>(store.term)];
  for (Kernel::Sum& sum : kernel_.sums) sum.term = place[static_cast<size_t>(sum.term)];
}

/// Two axes of which the inner one ends where the next element along the outer one begins, in all
/// buffers, are one axis.
void Lowering::merge_axes(Sizes& sizes, Sizes Buffer::*strides) {
  for (size_t i = sizes.size(); i-- > 1;) {
    const bool are_one =
        std::all_of(kernel_.buffers.begin(), kernel_.buffers.end(), [&](const Buffer& buffer) {
          const Sizes& all = buffer.*strides;
          return all[i - 1] == all[i] * sizes[i];
        });
    if (!are_one) continue;
    sizes[i - 1] *= sizes[i];
    sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(i));
    for (Buffer& buffer : kernel_.buffers) {
      Sizes& all = buffer.*strides;
      all[i - 1] = all[i];
      all.erase(all.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

/// Where nothing is done along rows, rows that follow one another in memory are one long row.
void Lowering::flatten() {
  const bool has_rows =
      std::any_of(
          kernel_.terms.begin(), kernel_.terms.end(),
          [](const Term& term) { return is_row_reduction(term.op) || term.op == Op::Position; }) ||
      std::any_of(kernel_.sums.begin(), kernel_.sums.end(),
                  [](const Kernel::Sum& sum) { return sum.kind != Kernel::Sum::Kind::All; });
  if (has_rows || kernel_.columns.size() != 1) return;
  while (!kernel_.rows.empty()) {
    const int64_t size = kernel_.columns[0];
    for (const Buffer& buffer : kernel_.buffers) {
      if (buffer.rows.back() != buffer.columns[0] * size) return;
    }
    kernel_.columns[0] *= kernel_.rows.pop_back_val();
    for (Buffer& buffer : kernel_.buffers) buffer.rows.pop_back();
  }
}

}  // namespace

Kernel lower(const Graph& graph, bool strict) {
  return Lowering(graph, strict).run();
}

}  // namespace ahead::native
