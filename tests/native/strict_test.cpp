#include "native/lower/strict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "native/rule_cases.h"
#include "support/fuzzing.h"

namespace ahead::native::strict_test {

using at::Tensor;
using test::Against;
using test::RuleCase;
using Args = std::vector<c10::IValue>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

constexpr at::ScalarType all_dtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                         at::kLong,  at::kInt,    at::kBool};

bool is_full(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble;
}

/// Numbers of which each operator treats some in its own way, and others, in any order.
Tensor numbers(at::ScalarType dtype, int64_t count) {
  if (dtype == at::kBool) return at::rand({count}) < 0.5;
  if (!at::isFloatingType(dtype)) {
    const int64_t most = dtype == at::kInt ? std::numeric_limits<int32_t>::max()
                                           : std::numeric_limits<int64_t>::max();
    const Tensor special = at::tensor({int64_t{0}, int64_t{1}, int64_t{-1}, most, -most - 1});
    const Tensor chosen = special.index_select(0, at::randint(5, {count}));
    return at::where(at::rand({count}) < 0.3, chosen, at::randint(-1000, 1000, {count})).to(dtype);
  }
  const Tensor special =
      at::tensor({0.0,  -0.0,  nan,  infinity, -infinity, 1e-40, -1e-40, 1e-310, 1e4, 6e4,
                  5e-8, 1e-30, 1e30, -1e20,    1.0,       -1.0,  0.5,    -0.5,   3.0, -3.0,
                  2.5,  -3.5,  0.1,  -0.1,     49.0,      255.0, 6.0,    -6.0,   1e3, 1e300},
                 at::kDouble);
  const Tensor chosen = special.index_select(0, at::randint(special.size(0), {count}));
  return at::where(at::rand({count}) < 0.4, chosen, at::randn({count}, at::kDouble)).to(dtype);
}

/// Functions that ATen lets MKL compute, if it has that.
constexpr const char* functions_of_library[] = {"aten.sqrt", "aten.exp",   "aten.log",
                                                "aten.log2", "aten.log10", "aten.erf",
                                                "aten.tanh", "aten.sin",   "aten.cos"};

/// How a tensor lies in memory.
struct Place {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;

  Tensor fill(at::ScalarType dtype) const {
    int64_t last = offset;
    for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
    return numbers(dtype, last + 1).as_strided(sizes, strides, offset);
  }
};

/// Each length with another offset, and matrices whose rows, or columns, lie apart.
std::vector<Place> places() {
  std::vector<Place> all{{{}, {}, 0}};
  for (int64_t length = 1; length <= 70; ++length) all.push_back({{length}, {1}, length * 5 % 17});
  for (const int64_t length : {1, 2, 7, 16, 33, 64}) {
    all.push_back({{5, length}, {length + 3, 1}, length % 4});
    all.push_back({{length, 5}, {1, length + 1}, 1});
  }
  all.push_back({{3, 2, 9}, {1, 27, 3}, 0});
  return all;
}

RuleCase exact(std::string op, Args args) {
  return {std::move(op), std::move(args), Against::Exact, 0};
}

/// Calls of operators with up to three tensors that lie alike.
class Calls {
 public:
  Calls(at::ScalarType dtype, const Place& place)
      : dtype_(dtype), x_(place.fill(dtype)), y_(place.fill(dtype)), z_(place.fill(dtype)) {}

  std::vector<RuleCase> take() {
    add_copies();
    if (dtype_ == at::kBool) {
      add_logic();
    } else {
      add_comparisons();
      at::isFloatingType(dtype_) ? add_floats() : add_integers();
    }
    if (is_full(dtype_)) add_formulas();
    return std::move(cases_);
  }

 private:
  void add(const std::string& op, Args args) { cases_.push_back(exact(op, std::move(args))); }

  void add_copies();
  void add_logic();
  void add_comparisons();
  void add_integers();
  void add_floats();
  void add_formulas();
  void add_functions();

  at::ScalarType dtype_;
  Tensor x_, y_, z_;
  std::vector<RuleCase> cases_;
};

void Calls::add_copies() {
  const std::vector<int64_t> sizes = x_.sizes().vec();
  add("aten.clone", {x_});
  for (const at::ScalarType to : all_dtypes) {
    const bool is_safe = !at::isFloatingType(dtype_) || at::isFloatingType(to) || to == at::kBool;
    if (!is_safe) continue;
    add("aten._to_copy", {x_, to});
    add("aten.copy", {at::empty_like(x_, to), x_});
  }
  if (dtype_ != at::kBool) {
    const Tensor mask = at::rand(sizes) < 0.5;
    const c10::IValue number = at::isFloatingType(dtype_) ? c10::IValue(-infinity) : c10::IValue(7);
    add("aten.where.self", {mask, x_, y_});
    add("aten.where.self", {mask, x_, number});
    add("aten.masked_fill.Scalar", {x_, mask, number});
    add("aten.masked_fill.Tensor", {x_, mask, numbers(dtype_, 1)[0]});
  }
  if (x_.dim() > 1) return;
  for (const char* op : {"aten.zeros", "aten.ones"}) add(op, {sizes, dtype_});
  for (const char* op : {"aten.new_zeros", "aten.new_ones"}) add(op, {z_, sizes});
  for (const char* op : {"aten.zeros_like", "aten.ones_like"}) add(op, {z_});
  std::vector<c10::IValue> values{0, 1};
  if (at::isFloatingType(dtype_)) values.insert(values.end(), {-0.0, 1.0 / 3, nan, -infinity});
  for (const c10::IValue& value : values) {
    add("aten.full", {sizes, value, dtype_});
    add("aten.full_like", {z_, value});
    add("aten.new_full", {z_, sizes, value});
    add("aten.scalar_tensor", {value, dtype_});
  }
}

void Calls::add_logic() {
  for (const char* op :
       {"aten.logical_and", "aten.logical_or", "aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor"})
    add(op, {x_, y_});
  for (const char* op : {"aten.logical_not", "aten.bitwise_not"}) add(op, {x_});
}

void Calls::add_comparisons() {
  for (const std::string op : {"aten.lt", "aten.le", "aten.gt", "aten.ge", "aten.eq", "aten.ne"}) {
    add(op + ".Tensor", {x_, y_});
    add(op + ".Scalar", {x_, 3});
    if (!at::isFloatingType(dtype_)) continue;
    for (const double number : {0.1, -0.0, nan}) add(op + ".Scalar", {x_, number});
  }
  add("aten.isnan", {x_});
  for (const char* op : {"aten.neg", "aten.abs", "aten.square", "aten.relu"}) add(op, {x_});
  for (const char* op : {"aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Tensor"}) {
    add(op, {x_, y_});
    add(op, {x_, 3});
    add(op, {x_, numbers(dtype_, 1)[0]});
  }
  for (const char* op : {"aten.add.Scalar", "aten.sub.Scalar", "aten.rsub.Scalar"})
    add(op, {x_, 3});
  add("aten.mul.Tensor", {x_, y_});
  add("aten.mul.Tensor", {x_, numbers(dtype_, 1)[0]});
  add("aten.mul.Scalar", {x_, -3});
  for (const int64_t exponent : {1, 2}) add("aten.pow.Tensor_Scalar", {x_, exponent});
  add("aten.threshold_backward", {x_, y_, 1});
  add("aten.clamp", {x_, -1, 3});
  add("aten.clamp_min", {x_, 0});
  add("aten.clamp_max", {x_, 0});
}

void Calls::add_integers() {
  for (const char* op : {"aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Tensor"})
    add(op, {x_, y_, -5});
  for (const char* op :
       {"aten.maximum", "aten.minimum", "aten.clamp_min.Tensor", "aten.clamp_max.Tensor"})
    add(op, {x_, y_});
  add("aten.addcmul", {x_, y_, z_, 3});
  add("aten.pow.Tensor_Scalar", {x_, 3});
  // These become float32 first.
  add("aten.div.Tensor", {x_, y_});
  add("aten.add.Tensor", {x_, 0.3});
  add("aten.mul.Tensor", {x_, y_.to(at::kFloat)});
}

void Calls::add_floats() {
  for (const char* op : {"aten.sign", "aten.sgn", "aten.reciprocal", "aten.floor", "aten.ceil",
                         "aten.trunc", "aten.round"})
    add(op, {x_});
  for (const char* op : {"aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Tensor",
                         "aten.mul.Tensor", "aten.div.Tensor"})
    add(op, {x_, 0.3});
  for (const char* op : {"aten.add.Scalar", "aten.sub.Scalar", "aten.rsub.Scalar"})
    add(op, {x_, 0.3});
  for (const double number : {0.3, 49.0, 0.5, -0.0, nan}) {
    add("aten.mul.Scalar", {x_, number});
    add("aten.div.Scalar", {x_, number});
  }
  add("aten.div.Tensor", {x_, y_});
  add("aten.div.Tensor", {x_, numbers(dtype_, 1)[0]});
  for (const double bound : {0.1, 0.0, -0.0, nan}) {
    add("aten.clamp", {x_, bound, 3.0});
    add("aten.clamp", {x_, bound});
    add("aten.clamp", {x_, c10::IValue(), bound});
    add("aten.clamp_min", {x_, bound});
    add("aten.clamp_max", {x_, bound});
  }
  add("aten.clamp", {x_, 1.0, -1.0});
  add("aten.hardtanh", {x_, -0.1, 3.0});
  add("aten.leaky_relu", {x_, 0.1});
  add("aten.leaky_relu_backward", {x_, y_, 0.1, false});
  for (const double threshold : {0.0, 0.1}) add("aten.threshold_backward", {x_, y_, threshold});
  add("aten.native_dropout_backward", {x_, at::rand(x_.sizes()) < 0.5, 1 / 0.9});
}

/// Of several steps, for which ATen has instructions that round once.
void Calls::add_formulas() {
  for (const char* op : {"aten.rsqrt", "aten.hardsigmoid", "aten.hardswish"}) add(op, {x_});
  add_functions();
  for (const double exponent : {0.0, 3.0, -0.5, -1.0, -2.0})
    add("aten.pow.Tensor_Scalar", {x_, exponent});
  for (const double scale : {0.1, -1.0, -1e-3, 2.0}) {
    for (const char* op : {"aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Tensor"})
      add(op, {x_, y_, scale});
    add("aten.addcmul", {x_, y_, z_, scale});
    add("aten.addcdiv", {x_, y_, z_, scale});
  }
  for (const char* op : {"aten.addcmul", "aten.addcdiv"}) add(op, {x_, y_, z_, 1});
  for (const double weight : {0.1, 0.3, -0.2, 0.0}) add("aten.lerp.Scalar", {x_, y_, weight});
  for (const char* op :
       {"aten.hardsigmoid_backward", "aten.tanh_backward", "aten.sigmoid_backward"})
    add(op, {x_, y_});
  add("aten.mse_loss_backward", {x_, y_, z_, 0});
  for (const int64_t reduction : {1, 2})
    add("aten.mse_loss_backward", {numbers(dtype_, 1)[0], y_, z_, reduction});
}

void Calls::add_functions() {
  if (!at::hasMKL()) return;
  for (const char* op : functions_of_library) add(op, {x_});
  add("aten.pow.Tensor_Scalar", {x_, 0.5});
}

/// One operand has some dimensions only, or another dtype.
void add_broadcast(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  for (const int64_t length : {1, 5, 16, 33, 65}) {
    const Tensor x = numbers(dtype, 7 * length).view({7, length});
    for (const Tensor& y : {numbers(dtype, length), numbers(dtype, 7).view({7, 1}),
                            numbers(dtype, 1), numbers(at::kDouble, 1)[0]}) {
      if (dtype != at::kDouble && y.scalar_type() == at::kDouble && !is_full(dtype)) continue;
      for (const char* op :
           {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"})
        cases.push_back(exact(op, {x, y}));
      if (y.scalar_type() == dtype) cases.push_back(exact("aten.lt.Tensor", {x, y}));
    }
    const Tensor mask = at::rand({length}) < 0.5;
    cases.push_back(exact("aten.where.self", {mask, x, numbers(dtype, 1)[0]}));
    cases.push_back(exact("aten.masked_fill.Scalar", {x, mask, 0.1}));
  }
}

void add_picked(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  for (const int64_t length : {1, 5, 16, 33, 65}) {
    const Tensor table = numbers(dtype, 11 * length).view({11, length});
    cases.push_back(exact("aten.embedding", {table, at::randint(11, {4, 3})}));
    cases.push_back(exact("aten.index_select", {table, 0, at::randint(11, {9})}));
    cases.push_back(exact("aten.gather", {table, 0, at::randint(11, {6, length})}));
  }
}

std::vector<RuleCase> cases_for(at::ScalarType dtype) {
  torch::manual_seed(7);
  std::vector<RuleCase> cases;
  for (const Place& place : places()) {
    for (RuleCase& one : Calls(dtype, place).take()) cases.push_back(std::move(one));
  }
  if (at::isFloatingType(dtype)) add_broadcast(cases, dtype);
  if (dtype != at::kBool) add_picked(cases, dtype);
  return cases;
}

class Strict : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Strict, KernelsGiveTheSameBitsWhereverAnElementLies) {
  const ahead::test::QuietWarnings quiet;
  const std::vector<RuleCase> cases = cases_for(GetParam());
  EXPECT_GT(test::check_exact_rules(cases), cases.size() * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(, Strict, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(StrictTable, IsTestedAsAWhole) {
  std::set<std::string> tested;
  for (const at::ScalarType dtype : all_dtypes) {
    for (const RuleCase& one : cases_for(dtype)) tested.insert(one.op);
  }
  if (!at::hasMKL())
    tested.insert(std::begin(functions_of_library), std::end(functions_of_library));
  for (const ExactRule* rule = exact_rules; rule->name != nullptr; ++rule) {
    EXPECT_NE(Operator::find(rule->name), nullptr) << rule->name;
    EXPECT_EQ(tested.count(rule->name), 1U) << rule->name << " has no case";
  }
}

/// What ATen gives for an element depends on where it lies, or the formula is another one.
TEST(StrictTable, LeavesToATenWhatDependsOnPlaces) {
  const Tensor x = at::randn({4, 33}), row = at::randn({33}), narrow = x.to(at::kBFloat16);
  const std::vector<RuleCase> cases{
      exact("aten.gelu", {x}),
      exact("aten.sigmoid", {x}),
      exact("aten.exp", {narrow}),
      exact("aten.log1p", {x}),
      exact("aten.maximum", {x, x}),
      exact("aten.amax", {x, std::vector<int64_t>{1}}),
      exact("aten.sum", {x}),
      exact("aten.hardtanh_backward", {x, x, -1.0, 1.0}),
      exact("aten.add.Tensor", {x, row, 0.1}),
      exact("aten.add.Tensor", {x, row.expand({4, 33}), 0.1}),
      exact("aten.add.Scalar", {x, 0.3, 0.1}),
      exact("aten.addcmul", {x, row, x}),
      exact("aten.lerp.Scalar", {x, x, 0.75}),
      exact("aten.rsqrt", {narrow}),
      exact("aten.pow.Tensor_Scalar", {narrow, 3.0}),
      exact("aten.pow.Tensor_Scalar", {x, 2.5}),
      exact("aten.mul.Tensor", {narrow, at::scalar_tensor(0.3, at::kDouble)}),
      exact("aten._to_copy", {x, at::kLong}),
      exact("aten.copy", {at::empty({4, 33}, at::kInt), x}),
  };
  for (const RuleCase& one : cases) {
    const test::RuleGraph graph(one);
    EXPECT_FALSE(has_exact_rule(*graph.graph.first())) << one.str();
  }
}

}  // namespace ahead::native::strict_test
