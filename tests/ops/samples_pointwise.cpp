#include "ops/families.h"

// Pointwise operators that need more than one argument list to be said.
namespace ahead::samples::pointwise_samples {
namespace {

constexpr Dtypes not_complex = real | boolean;
void add_arithmetic(SampleTable& table) {
  table.op("aten.add")
      .over(binary_inputs(everything), [](auto& x, auto& y) { return at::add(x, y); })
      .over(
          unary_inputs(numeric), [](auto& x) { return at::add(x, 3); }, "scalar")
      .sample("alpha", {f32(2, 3), f32(3)}, [](auto& x, auto& y) { return at::add(x, y, 0.5); })
      .sample("alpha of integers", {i64(3), i32(3)},
              [](auto& x, auto& y) { return at::add(x, y, 2); })
      .sample("float scalar to integers", {i64(3)}, [](auto& x) { return at::add(x, 1.5); })
      .sample("complex scalar", {f32(3)},
              [](auto& x) { return at::add(x, c10::complex<double>(1, 2)); })
      .sample("with itself", {f32(3)}, [](auto& x) { return at::add(x, x); });
  table.op("aten.add_")
      .in_place_over(writable_binary_inputs(floating | complex),
                     [](auto& x, auto& y) { return x.add_(y); })
      .in_place("alpha", {f32(2, 3), f32(3)}, [](auto& x, auto& y) { return x.add_(y, 2); })
      .in_place("scalar", {i32(2, 3)}, [](auto& x) { return x.add_(2); })
      .in_place("itself", {f32(2, 3)}, [](auto& x) { return x.add_(x); });
  table.op("aten.sub")
      .over(binary_inputs(numeric), [](auto& x, auto& y) { return at::sub(x, y); })
      .over(
          unary_inputs(numeric), [](auto& x) { return at::sub(x, 3); }, "scalar")
      .sample("alpha", {f32(2, 3), f32(3)}, [](auto& x, auto& y) { return at::sub(x, y, 0.5); });
  table.op("aten.sub_")
      .in_place_over(writable_binary_inputs(floating | complex),
                     [](auto& x, auto& y) { return x.sub_(y); })
      .in_place("scalar", {f32(2, 3)}, [](auto& x) { return x.sub_(2.5); });
  table.op("aten.subtract").over(binary_inputs(numeric), [](auto& x, auto& y) {
    return at::subtract(x, y);
  });
  table.op("aten.subtract_").in_place_over(writable_binary_inputs(floating), [](auto& x, auto& y) {
    return x.subtract_(y);
  });
  table.op("aten.rsub")
      .over(binary_inputs(numeric), [](auto& x, auto& y) { return at::rsub(x, y); })
      .over(
          unary_inputs(numeric), [](auto& x) { return at::rsub(x, 3); }, "scalar")
      .sample("alpha", {f32(2, 3)}, [](auto& x) { return at::rsub(x, 1.5, 2); });
  table.op("aten.div")
      .over(
          binary_inputs(real, Domain::Positive),
          [](auto& x, auto& y) { return at::div(x, y, "floor"); }, "floor")
      .over(
          binary_inputs(real, Domain::Positive),
          [](auto& x, auto& y) { return at::div(x, y, "trunc"); }, "trunc")
      .sample("floor by number", {f32(3)}, [](auto& x) { return at::div(x, 0.3, "floor"); });
  table.op("aten.div_").in_place("floor", {f32(3), f32(3)}, [](auto& x, auto& y) {
    return x.div_(y, "floor");
  });
  table.op("aten.mul_").not_differentiable().in_place("itself", {f32(3)}, [](auto& x) {
    return x.mul_(x);
  });
  table.op("aten.pow")
      .sample("number to the power of a tensor", {f32(3)}, [](auto& x) { return at::pow(2.5, x); })
      .sample("number to the power of integers", {i64(3).positive()},
              [](auto& x) { return at::pow(2, x); })
      .sample("exponent 0", {f32(3)}, [](auto& x) { return at::pow(x, 0); })
      .sample("exponent 0.5", {f32(4).specials()}, [](auto& x) { return at::pow(x, 0.5); })
      .sample("exponent 3", {f32(4).specials()}, [](auto& x) { return at::pow(x, 3); })
      .sample("negative base", {f32(4), f32(4)}, [](auto& x, auto& y) { return at::pow(x, y); })
      .sample("zero base", {f32(4).filled(0), f32(4)},
              [](auto& x, auto& y) { return at::pow(x, y); });
  table.op("aten.float_power").sample("number to the power of a tensor", {f32(3)}, [](auto& x) {
    return at::float_power(2.5, x);
  });
  table.op("aten.float_power_")
      .in_place("tensor", {f64(3).positive(), f32(3)},
                [](auto& x, auto& y) { return x.float_power_(y); })
      .in_place("scalar", {f64(3).positive()}, [](auto& x) { return x.float_power_(2); });
  table.op("aten.remainder")
      .not_differentiable()
      .sample("number by tensor", {f32(3).positive()},
              [](auto& x) { return at::remainder(5.5, x); });
  table.op("aten.xlogy").sample("number by tensor", {f32(3).positive()}, [](auto& x) {
    return at::xlogy(2, x);
  });
  table.op("aten.bitwise_and").sample("number and tensor", {i64(3)}, [](auto& x) {
    return at::bitwise_and(at::Scalar(6), x);
  });
  table.op("aten.bitwise_left_shift").sample("number by tensor", {i64(3).positive()}, [](auto& x) {
    return at::bitwise_left_shift(at::Scalar(6), x);
  });
}

void add_same_type_binary(SampleTable& table) {
  const auto pairs = [](Dtypes dtypes) {
    std::vector<Inputs> sets;
    for (at::ScalarType dtype : dtypes.list()) {
      sets.push_back({tensor(dtype, 2, 3), tensor(dtype, 2, 3)});
      sets.push_back({tensor(dtype, 2, 1), tensor(dtype, 3)});
      sets.push_back({tensor(dtype), tensor(dtype)});
      sets.push_back({tensor(dtype, 0, 2), tensor(dtype, 2)});
      sets.push_back({tensor(dtype, 2, 3).transposed(), tensor(dtype, 2, 3).strided()});
      sets.push_back({tensor(dtype, 4, 5).specials(), tensor(dtype, 4, 5).specials().transposed()});
    }
    return sets;
  };
  table.op("aten.hypot").over(pairs(floating), at::hypot);
  table.op("aten.hypot_").in_place_over(writable_binary_inputs(floating), [](auto& x, auto& y) {
    return x.hypot_(y);
  });
  table.op("aten.nextafter").over(pairs(floating), at::nextafter);
  table.op("aten.nextafter_").in_place("tensor", {f32(3), f32(3)}, [](auto& x, auto& y) {
    return x.nextafter_(y);
  });
  table.op("aten.isclose").over(pairs(everything - boolean), [](auto& x, auto& y) {
    return at::isclose(x, y);
  });
  table.op("aten.isclose")
      .sample("nan equal", {f32(9).specials(), f32(9).specials()},
              [](auto& x, auto& y) { return at::isclose(x, y, 0.1, 0.1, true); });
}

void add_gamma_functions(SampleTable& table) {
  const auto pairs = [](Dtypes dtypes) {
    std::vector<Inputs> sets;
    for (at::ScalarType dtype : dtypes.list()) {
      sets.push_back({tensor(dtype, 2, 3).positive().no_grad(), tensor(dtype, 2, 3).positive()});
      sets.push_back({tensor(dtype, 2, 1).positive().no_grad(), tensor(dtype, 3).positive()});
      sets.push_back(
          {tensor(dtype, 3, 2).positive().transposed().no_grad(), tensor(dtype).positive()});
    }
    return sets;
  };
  table.op("aten.igamma").over(pairs(floating), at::igamma);
  table.op("aten.igammac").over(pairs(floating), at::igammac);
  table.op("aten.special_gammainc").over(pairs(floating), at::special_gammainc);
  table.op("aten.special_gammaincc").over(pairs(floating), at::special_gammaincc);
  table.op("aten.igamma_")
      .in_place("tensor", {f32(3).positive().no_grad(), f32(3).positive().no_grad()},
                [](auto& x, auto& y) { return x.igamma_(y); });
  table.op("aten.igammac_")
      .in_place("tensor", {f32(3).positive().no_grad(), f32(3).positive().no_grad()},
                [](auto& x, auto& y) { return x.igammac_(y); });
  table.op("aten.special_zeta")
      .over(pairs(full_floating), [](auto& x, auto& y) { return at::special_zeta(x, y); })
      .over(binary_inputs(integral, Domain::AboveOne),
            [](auto& x, auto& y) { return at::special_zeta(x, y); })
      .sample("number by tensor", {f32(3).positive()},
              [](auto& x) { return at::special_zeta(2.5, x); })
      .not_differentiable()
      .sample("tensor by number", {f32(3).range(2, 4)},
              [](auto& x) { return at::special_zeta(x, 2.5); });
  table.op("aten.polygamma")
      .over(
          unary_inputs(not_complex, Domain::Positive), [](auto& x) { return at::polygamma(1, x); },
          "1")
      .over(
          unary_inputs(full_floating, Domain::Positive),
          [](auto& x) { return at::polygamma(3, x); }, "3");
  table.op("aten.polygamma_").in_place("2", {f32(3).positive()}, [](auto& x) {
    return x.polygamma_(2);
  });
  table.op("aten.special_polygamma").over(unary_inputs(not_complex, Domain::Positive), [](auto& x) {
    return at::special_polygamma(1, x);
  });
  table.op("aten.mvlgamma").over(unary_inputs(real, Domain::AboveOne), [](auto& x) {
    return at::mvlgamma(x, 2);
  });
  table.op("aten.mvlgamma_").in_place("2", {f32(3).range(2, 4)}, [](auto& x) {
    return x.mvlgamma_(2);
  });
  table.op("aten.special_multigammaln").over(unary_inputs(floating, Domain::AboveOne), [](auto& x) {
    return at::special_multigammaln(x, 2);
  });
}

void add_unary_with_numbers(SampleTable& table) {
  table.op("aten.round")
      .over(
          unary_inputs(floating), [](auto& x) { return at::round(x, 2); }, "2 decimals")
      .sample("-1 decimals", {f64(4).range(-99, 99)}, [](auto& x) { return at::round(x, -1); });
  table.op("aten.special_round").over(unary_inputs(floating), [](auto& x) {
    return at::special_round(x, 1);
  });
  table.op("aten.logit")
      .over(unary_inputs(not_complex, Domain::Unit), [](auto& x) { return at::logit(x); })
      .over(
          unary_inputs(floating), [](auto& x) { return at::logit(x, 0.1); }, "eps");
  table.op("aten.logit_").in_place("eps", {f32(4).range(0, 1)}, [](auto& x) {
    return x.logit_(0.2);
  });
  table.op("aten.special_logit").over(unary_inputs(not_complex, Domain::Unit), [](auto& x) {
    return at::special_logit(x);
  });
  table.op("aten.nan_to_num")
      .over(unary_inputs(not_complex), [](auto& x) { return at::nan_to_num(x); })
      .over(
          unary_inputs(floating), [](auto& x) { return at::nan_to_num(x, 1.0, 2.0, -3.0); },
          "numbers")
      .not_differentiable()
      .sample("complex", {c64(7).specials()}, [](auto& x) { return at::nan_to_num(x); });
  table.op("aten.nan_to_num_").in_place("plain", {f32(3, 4).specials()}, [](auto& x) {
    return x.nan_to_num_(1.0);
  });
  table.op("aten.frexp").over(unary_inputs(floating), [](auto& x) { return at::frexp(x); });
}

void add_ternary(SampleTable& table) {
  table.op("aten.addcmul")
      .over(ternary_inputs(numeric), [](auto& x, auto& y, auto& z) { return at::addcmul(x, y, z); })
      .over(
          ternary_inputs(floating),
          [](auto& x, auto& y, auto& z) { return at::addcmul(x, y, z, 0.5); }, "value");
  table.op("aten.addcmul_")
      .in_place("value", {f32(2, 3), f32(2, 1), f32(3)},
                [](auto& x, auto& y, auto& z) { return x.addcmul_(y, z, 2); });
  // Its gradient divides in place, which is refused for complex numbers of single precision.
  table.op("aten.addcdiv")
      .over(ternary_inputs(floating),
            [](auto& x, auto& y, auto& z) { return at::addcdiv(x, y, z); })
      .sample("complex", {c128(2, 3), c128(2, 3), c128(2, 3)},
              [](auto& x, auto& y, auto& z) { return at::addcdiv(x, y, z); })
      .over(
          ternary_inputs(floating),
          [](auto& x, auto& y, auto& z) { return at::addcdiv(x, y, z, -2); }, "value");
  table.op("aten.addcdiv_")
      .in_place("value", {f32(2, 3), f32(2, 1), f32(3)},
                [](auto& x, auto& y, auto& z) { return x.addcdiv_(y, z, 2); });
  table.op("aten.lerp")
      .over(ternary_inputs(floating | complex),
            [](auto& x, auto& y, auto& z) { return at::lerp(x, y, z); })
      .over(
          binary_inputs(floating | complex, Domain::Any, Mixing::None),
          [](auto& x, auto& y) { return at::lerp(x, y, 0.25); }, "number");
  table.op("aten.lerp_")
      .in_place("tensor", {f32(2, 3), f32(3), f32(2, 1)},
                [](auto& x, auto& y, auto& z) { return x.lerp_(y, z); })
      .in_place("number", {f32(2, 3), f32(3)}, [](auto& x, auto& y) { return x.lerp_(y, 0.75); });
}

/// The bounds broadcast to the tensor, not the other way around: eager's backward cannot do that.
std::vector<Inputs> clamp_inputs() {
  std::vector<Inputs> sets = {
      {f32(2, 3), f32(3), f32(2, 1)},
      {f32(), f32(), f32()},
      {f32(0, 2), f32(2), f32()},
      {f32(3, 4).transposed(), f32(3, 4), f32(3, 4).strided()},
      {f32(2, 3, 2, 2).channels_last(), f32(2, 3, 2, 2), f32(3, 1, 1)},
      {f32(2, 3), i64(3), f64()},
  };
  for (at::ScalarType dtype : real.list()) {
    sets.push_back({tensor(dtype, 4), tensor(dtype, 4), tensor(dtype, 4)});
  }
  return sets;
}

void add_clamps(SampleTable& table) {
  table.op("aten.clamp")
      .over(
          unary_inputs(real), [](auto& x) { return at::clamp(x, -1, 1); }, "numbers")
      .over(
          unary_inputs(floating), [](auto& x) { return at::clamp(x, std::nullopt, 0.5); },
          "only max")
      .over(clamp_inputs(), [](auto& x, auto& y, auto& z) { return at::clamp(x, y, z); })
      .sample("integers with float bounds", {i64(4)},
              [](auto& x) { return at::clamp(x, -1.5, 2.5); })
      .sample("only min tensor", {f32(2, 3), f32(3)},
              [](auto& x, auto& y) { return at::clamp(x, y); })
      .sample("NaN", {f32(4, 5).specials()}, [](auto& x) { return at::clamp(x, -1, 1); });
  table.op("aten.clamp_")
      .in_place("numbers", {f32(2, 3)}, [](auto& x) { return x.clamp_(-0.5, 0.5); })
      .in_place("tensors", {f32(2, 3), f32(3), f32()},
                [](auto& x, auto& y, auto& z) { return x.clamp_(y, z); });
  table.op("aten.clip")
      .over(
          unary_inputs(real), [](auto& x) { return at::clip(x, -1, 1); }, "numbers")
      .sample("tensors", {f32(2, 3), f32(3), f32()},
              [](auto& x, auto& y, auto& z) { return at::clip(x, y, z); });
  table.op("aten.clip_").in_place("numbers", {f32(2, 3)}, [](auto& x) {
    return x.clip_(-0.5, 0.5);
  });
  table.op("aten.clamp_min")
      .over(
          unary_inputs(real), [](auto& x) { return at::clamp_min(x, 1); }, "number")
      .over(binary_inputs(real), [](auto& x, auto& y) { return at::clamp_min(x, y); });
  table.op("aten.clamp_min_")
      .in_place("number", {f32(2, 3)}, [](auto& x) { return x.clamp_min_(0.1); })
      .in_place("tensor", {f32(2, 3), f32(3)}, [](auto& x, auto& y) { return x.clamp_min_(y); });
  table.op("aten.clamp_max")
      .over(
          unary_inputs(real), [](auto& x) { return at::clamp_max(x, 1); }, "number")
      .over(binary_inputs(real), [](auto& x, auto& y) { return at::clamp_max(x, y); });
  table.op("aten.clamp_max_")
      .in_place("number", {f32(2, 3)}, [](auto& x) { return x.clamp_max_(0.1); })
      .in_place("tensor", {f32(2, 3), f32(3)}, [](auto& x, auto& y) { return x.clamp_max_(y); });
}

void add_where(SampleTable& table) {
  table.op("aten.where")
      .sample("plain", {b8(2, 3), f32(2, 3), f32(2, 3)},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("broadcast", {b8(2, 1), f32(3), f32()},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("mixed types", {b8(2, 3), f32(3), f64(2, 3)},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("integer and float", {b8(3), i64(3), f32(3)},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("empty", {b8(0, 3), f32(3), f32()},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("transposed", {b8(3, 4), f32(3, 4).transposed(), f32(3, 4).transposed()},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("transposed condition", {b8(3, 4).transposed(), f32(3, 4), f32(4)},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("channels last", {b8(2, 3, 2, 2), f32(2, 3, 2, 2).channels_last(), f32()},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("complex", {b8(3), c64(3), c64(3)},
              [](auto& c, auto& x, auto& y) { return at::where(c, x, y); })
      .sample("tensor and number", {b8(3), f32(3)},
              [](auto& c, auto& x) { return at::where(c, x, 0.5); })
      .sample("number and tensor", {b8(3), f16(3)},
              [](auto& c, auto& x) { return at::where(c, 0.5, x); })
      .sample("numbers", {b8(3)}, [](auto& c) { return at::where(c, 1.5, 0); });
  table.op("aten.masked_fill")
      .sample("number", {f32(2, 3), b8(2, 3)},
              [](auto& x, auto& m) { return at::masked_fill(x, m, 2.5); })
      .sample("mask broadcasts", {f32(2, 3), b8(3)},
              [](auto& x, auto& m) { return at::masked_fill(x, m, 0); })
      .sample("tensor broadcasts", {f32(3), b8(2, 3)},
              [](auto& x, auto& m) { return at::masked_fill(x, m, 0); })
      .sample("value tensor", {f32(2, 3), b8(2, 1), f32()},
              [](auto& x, auto& m, auto& v) { return at::masked_fill(x, m, v); })
      .sample("transposed", {f32(3, 4).transposed(), b8(3, 4)},
              [](auto& x, auto& m) { return at::masked_fill(x, m, -1); })
      .sample("integers", {i64(3), b8(3)},
              [](auto& x, auto& m) { return at::masked_fill(x, m, 7); })
      .sample("half", {f16(3), b8(3)},
              [](auto& x, auto& m) { return at::masked_fill(x, m, -65504); })
      .sample("complex", {c64(3), b8(3)}, [](auto& x, auto& m) { return at::masked_fill(x, m, 1); })
      .sample("empty", {f32(0), b8(0)}, [](auto& x, auto& m) { return at::masked_fill(x, m, 1); });
  table.op("aten.masked_fill_")
      .in_place("number", {f32(2, 3), b8(3)},
                [](auto& x, auto& m) { return x.masked_fill_(m, 2.5); })
      .gradient_rounds(
          "eager sums what masked_select finds; a graph has no sizes that depend on data")
      .in_place("value tensor", {f32(2, 3), b8(2, 1), f32()},
                [](auto& x, auto& m, auto& v) { return x.masked_fill_(m, v); });
  table.op("aten.masked_scatter")
      .sample("plain", {f32(2, 3), b8(2, 3), f32(7)},
              [](auto& x, auto& m, auto& s) { return at::masked_scatter(x, m, s); })
      .sample("mask broadcasts", {f32(2, 3), b8(3), f32(6)},
              [](auto& x, auto& m, auto& s) { return at::masked_scatter(x, m, s); })
      .sample("double", {f64(4), b8(4), f64(2, 2)},
              [](auto& x, auto& m, auto& s) { return at::masked_scatter(x, m, s); });
  table.op("aten.masked_scatter_")
      .in_place("plain", {f32(2, 3), b8(2, 3), f32(7)},
                [](auto& x, auto& m, auto& s) { return x.masked_scatter_(m, s); });
}

}  // namespace

void add(SampleTable& table) {
  add_arithmetic(table);
  add_same_type_binary(table);
  add_gamma_functions(table);
  add_unary_with_numbers(table);
  add_ternary(table);
  add_clamps(table);
  add_where(table);
}

}  // namespace ahead::samples::pointwise_samples
