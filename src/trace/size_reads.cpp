#include "trace/size_reads.h"

#include <torch/library.h>

#include "ahead/errors.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/layout.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

/// The expression as it stands among the arguments of a node.
c10::IValue constant_of(const SizeExpression& expression) {
  return to_sym_int(Dim::of(expression), nullptr);
}

const char* name_of(SizeGuards::Relation relation, bool holds) {
  if (relation == SizeGuards::Relation::Equal) return holds ? "==" : "!=";
  return holds ? "<" : ">=";
}

void check_relation(int64_t left, c10::string_view relation, int64_t right) {
  const bool holds = relation == "=="   ? left == right
                     : relation == "!=" ? left != right
                     : relation == "<"  ? left < right
                                        : left >= right;
  if (holds) return;
  throw UserError("interpret",
                  c10::str("ahead.expect_relation: ", left, " ", relation, " ", right,
                           " does not hold, as it did when the graph was made. It reads a size "
                           "from a tensor, by which the function or an operator in it decides, and "
                           "is for such numbers only. Export it with a number like this one as "
                           "well."));
}

}  // namespace

/// Writes down what is decided by sizes.
class SizeReads::Checks final : public SizeGuards::Listener {
 public:
  explicit Checks(Tracer& tracer) : tracer_(&tracer) {}

  void close() { tracer_ = nullptr; }

  void note_decision(SizeGuards::Relation relation, const SizeExpression& left,
                     const SizeExpression& right, bool holds, bool is_known) override {
    static const Operator& expect = *Operator::find("ahead.expect_relation");
    if (tracer_ == nullptr) {
      throw UserError("trace", left.str() +
                                   ": a size of a finished trace is used. It has no value; do not "
                                   "keep it beyond the traced function.");
    }
    if (is_known) return;
    Node* node = tracer_->writer().record(
        expect, {constant_of(left), c10::IValue(name_of(relation, holds)), constant_of(right)});
    node->set(Tag::Effect);
  }

  void note_pin(const SizeExpression& expression, const std::string& reason) override {
    throw DataDependent("trace", "aten._local_scalar_dense: " + expression.str() +
                                     ", a number that is read from a tensor, is not known before "
                                     "the graph runs, but " +
                                     reason +
                                     ". Keep it as c10::SymInt (`item().toSymInt()`), and call "
                                     "operators that take such sizes (`torch::full_symint`, "
                                     "`x.slice_symint`).");
  }

 private:
  Tracer* tracer_;  ///< null: the trace is over
};

bool SizeReads::are_allowed(const at::Tensor& number) const {
  return find_ && c10::isIntegralType(number.scalar_type(), /*includeBool=*/false) &&
         number.scalar_type() != at::kUInt64;
}

c10::SymInt SizeReads::read(Value* number) {
  static const Operator& read = *Operator::find("ahead.local_scalar_dense");
  const int64_t value = find_(*number);
  if (checks_ == nullptr) {
    checks_ = std::make_shared<Checks>(tracer_);
    auto guards = std::make_shared<SizeGuards>(std::vector<int64_t>());
    guards->set_listener(checks_);
    tracer_.outside().note_read_sizes(std::move(guards));
  }
  const std::shared_ptr<SizeGuards>& guards = tracer_.outside().guards();
  const Dim size = Dim::symbol(guards->add(value));
  Node* node = tracer_.writer().record(read, {number, constant_of(size.expression())});
  node->set(Tag::Effect);
  return to_sym_int(size, guards);
}

void SizeReads::close() {
  if (checks_ != nullptr) checks_->close();
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("local_scalar_dense(Tensor self, SymInt size) -> ()");
  library.def("expect_relation(SymInt left, str relation, SymInt right) -> ()");
  library.impl("expect_relation",
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, check_relation));
}

}  // namespace ahead::tracing
