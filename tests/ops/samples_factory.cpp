#include "ops/families.h"

// Tensors out of nothing, and conversions between types and layouts.
namespace ahead::samples::factory_samples {
namespace {

void add_filled(SampleTable& table) {
  // Factories take no tensor: the argument is there to be added to the result or to give the sizes.
  const std::vector<Inputs> plain = {{f32(2, 3)}, {f32(2, 3).transposed()}, {f64(2, 3)}};
  table.op("aten.zeros")
      .over(plain, [](auto& x) { return at::zeros(x.sizes(), x.options()); })
      .sample("with the argument", {f32(2, 3)}, [](auto& x) { return x + at::zeros({3}); })
      .sample("no sizes", {f32()}, [](auto& x) { return x + at::zeros({}, at::kDouble); });
  table.op("aten.ones")
      .over(plain, [](auto& x) { return at::ones(x.sizes(), x.options()); })
      .sample("with the argument", {f32(2, 3)}, [](auto& x) {
        return x * at::ones({2, 1}, at::kLong);
      });
  table.op("aten.full")
      .over(plain, [](auto& x) { return at::full(x.sizes(), 2.5, x.options()); })
      .sample("integer", {f32(3)}, [](auto& x) { return x * at::full({3}, 2); })
      .sample("boolean", {f32(3)}, [](auto& x) { return at::where(at::full({3}, true), x, -x); })
      .sample("complex", {f32(3)},
              [](auto& x) { return x * at::full({3}, c10::complex<double>(1, 2)); });
  table.op("aten.empty")
      .over(plain, [](auto& x) { return at::empty(x.sizes(), x.options()).fill_(3); })
      .sample("channels last", {f32(2, 3, 2, 2)}, [](auto& x) {
        return at::empty(x.sizes(), x.options(), at::MemoryFormat::ChannelsLast).copy_(x);
      });
  table.op("aten.empty_strided").over(plain, [](auto& x) {
    return at::empty_strided({3, 2}, {1, 3}, x.options()).copy_(x.t());
  });
  table.op("aten.empty_permuted")
      .gradient_rounds("eager returns a view, whose backward makes the gradient contiguous")
      .over(plain, [](auto& x) {
        return at::empty_permuted({2, 3}, {1, 0}, x.options()).copy_(x);
      });
  table.op("aten.scalar_tensor").over(plain, [](auto& x) {
    return x * at::scalar_tensor(2.5, x.options());
  });
  table.op("aten.new_zeros").over(plain, [](auto& x) { return x.new_zeros({4}); });
  table.op("aten.new_ones").over(plain, [](auto& x) { return x.new_ones({4}, at::kInt); });
  table.op("aten.new_full").over(plain, [](auto& x) { return x.new_full({2, 2}, 7); });
  table.op("aten.new_empty").over(plain, [](auto& x) { return x.new_empty({2, 2}).zero_(); });
  table.op("aten.new_empty_strided").over(plain, [](auto& x) {
    return x.new_empty_strided({2, 2}, {1, 2}).zero_();
  });
  table.op("aten.zeros_like")
      .over(unary_inputs(everything), [](auto& x) { return at::zeros_like(x); })
      .sample("dtype", {f32(2, 3)}, [](auto& x) { return at::zeros_like(x, at::kLong); })
      .sample("contiguous", {f32(2, 3).transposed()},
              [](auto& x) { return at::zeros_like(x, {}, at::MemoryFormat::Contiguous); });
  table.op("aten.ones_like").over(unary_inputs(everything), [](auto& x) {
    return at::ones_like(x);
  });
  table.op("aten.full_like")
      .over(unary_inputs(everything), [](auto& x) { return at::full_like(x, 1); })
      .sample("dtype", {i64(2, 3)}, [](auto& x) { return at::full_like(x, 1.5, at::kFloat); });
  table.op("aten.empty_like").over(unary_inputs(everything), [](auto& x) {
    return at::empty_like(x).fill_(1);
  });
  table.op("aten.fill")
      .over(
          unary_inputs(everything), [](auto& x) { return at::fill(x, 1); }, "number")
      .sample("tensor", {f32(2, 3), f32()}, [](auto& x, auto& v) { return at::fill(x, v); });
  table.op("aten.zero").over(unary_inputs(everything - complex), [](auto& x) {
    return at::zero(x);
  });
  table.op("aten.copy")
      .not_differentiable()
      .over(writable_binary_inputs(everything), [](auto& x, auto& y) { return at::copy(x, y); });
}

void add_sequences(SampleTable& table) {
  table.op("aten.arange")
      .sample("end", {f32(5)}, [](auto& x) { return x + at::arange(5); })
      .sample("start, end", {f32(3)}, [](auto& x) { return x + at::arange(2, 5); })
      .sample("step", {f32(3)}, [](auto& x) { return x + at::arange(0, 6, 2); })
      .sample("floating", {f32(4)}, [](auto& x) { return x * at::arange(0.0, 1.0, 0.25); })
      .sample("backwards", {f32(3)}, [](auto& x) { return x * at::arange(3, 0, -1, at::kFloat); });
  table.op("aten.range")
      .sample("plain", {f32(4)}, [](auto& x) { return x + at::range(1, 4, at::kFloat); })
      .sample("step", {f32(3)}, [](auto& x) { return x + at::range(0, 1, 0.5); })
      .sample("double", {f64(3)}, [](auto& x) { return x + at::range(0, 2, at::kDouble); });
  table.op("aten.linspace")
      .sample("plain", {f32(5)}, [](auto& x) { return x + at::linspace(0, 1, 5); })
      .sample("integers", {f32(3)}, [](auto& x) { return x + at::linspace(1, 9, 3, at::kLong); })
      .not_differentiable()
      .sample("tensors", {f32(), f32()}, [](auto& x, auto& y) { return at::linspace(x, y, 4); });
  table.op("aten.logspace")
      .sample("plain", {f32(5)}, [](auto& x) { return x + at::logspace(0, 1, 5); })
      .sample("base 2", {f64(3)}, [](auto& x) { return x + at::logspace(0, 4, 3, 2, at::kDouble); })
      .sample("one", {f32(1)}, [](auto& x) { return x + at::logspace(0, 1, 1); });
  table.op("aten.eye")
      .sample("square", {f32(3, 3)}, [](auto& x) { return x + at::eye(3); })
      .sample("wide", {f32(2, 3)}, [](auto& x) { return x * at::eye(2, 3, at::kDouble); })
      .sample("integers", {f32(3, 3)},
              [](auto& x) { return x.matmul(at::eye(3, at::kLong).to(x.dtype())); });
  table.op("aten.tril_indices")
      .sample("plain", {f32(3, 3)},
              [](auto& x) {
                const at::Tensor i = at::tril_indices(3, 3);
                return x.index({i[0], i[1]});
              })
      .sample("offset", {f32(3, 4)},
              [](auto& x) {
                const at::Tensor i = at::tril_indices(3, 4, -1);
                return x.index({i[0], i[1]});
              })
      .sample("32 bit", {f32(2)},
              [](auto& x) { return std::make_tuple(x * 2, at::tril_indices(3, 3, 1, at::kInt)); });
  table.op("aten.triu_indices")
      .sample("plain", {f32(3, 3)},
              [](auto& x) {
                const at::Tensor i = at::triu_indices(3, 3);
                return x.index({i[0], i[1]});
              })
      .sample("offset", {f32(3, 4)},
              [](auto& x) {
                const at::Tensor i = at::triu_indices(3, 4, 1);
                return x.index({i[0], i[1]});
              })
      .sample("32 bit", {f32(2)},
              [](auto& x) { return std::make_tuple(x * 2, at::triu_indices(3, 3, 1, at::kInt)); });
  table.op("aten.one_hot")
      .sample("plain", {index(4, 5)}, [](auto& x) { return at::one_hot(x, 4); })
      .sample("matrix", {index(3, 2, 2)}, [](auto& x) { return at::one_hot(x, 3); })
      .sample("transposed", {index(3, 2, 4).transposed()},
              [](auto& x) { return at::one_hot(x, 3); })
      .sample("0-dimensional", {index(3)}, [](auto& x) { return at::one_hot(x, 5); })
      .sample("empty", {i64(2, 0)}, [](auto& x) { return at::one_hot(x, 5); })
      .reads_values()
      .sample("as many classes as there are", {index(3, 4)},
              [](auto& x) { return at::one_hot(x); });
  for (const char* name : {"hann", "hamming", "blackman", "bartlett", "kaiser"}) {
    const std::string window = name;
    const auto make = [window](int64_t length, bool periodic) {
      if (window == "hann") return at::hann_window(length, periodic);
      if (window == "hamming") return at::hamming_window(length, periodic);
      if (window == "blackman") return at::blackman_window(length, periodic);
      if (window == "bartlett") return at::bartlett_window(length, periodic);
      return at::kaiser_window(length, periodic);
    };
    table.op("aten." + window + "_window")
        .sample("periodic", {f32(6)}, [make](const at::Tensor& x) { return x * make(6, true); })
        .sample("symmetric", {f32(7)}, [make](const at::Tensor& x) { return x * make(7, false); })
        .sample("one", {f32(1)}, [make](const at::Tensor& x) { return x * make(1, true); });
  }
}

void add_conversions(SampleTable& table) {
  for (at::ScalarType dtype : everything.list()) {
    const std::string label = c10::str("to ", c10::toString(dtype));
    const Dtypes sources = at::isComplexType(dtype) ? everything : everything - complex;
    std::vector<Inputs> sets;
    for (at::ScalarType source : sources.list()) sets.push_back({tensor(source, 2, 3).positive()});
    sets.push_back({f32(3, 2).transposed()});
    sets.push_back({f32(3, 2).strided()});
    sets.push_back({f32(3, 2).expanded()});
    table.op("aten.to").over(
        sets, [dtype](const at::Tensor& x) { return x.to(dtype); }, label);
    table.op("aten._to_copy")
        .over(
            sets, [dtype](const at::Tensor& x) { return at::_to_copy(x, dtype); }, label);
  }
  table.op("aten.to")
      .sample("copy", {f32(2, 3)}, [](auto& x) { return x.to(at::kFloat, false, true); })
      .sample("same type", {f32(2, 3)}, [](auto& x) { return x.to(at::kFloat); })
      .sample("device", {f32(2, 3)}, [](auto& x) { return x.to(at::kCPU, at::kDouble); })
      .sample("other", {f32(2, 3), f64(1)}, [](auto& x, auto& y) { return x.to(y); })
      .sample("channels last", {f32(2, 3, 2, 2)}, [](auto& x) {
        return x.to(at::kFloat, false, false, at::MemoryFormat::ChannelsLast);
      });
  table.op("aten.type_as")
      .over(binary_inputs(floating, Domain::Any, Mixing::None),
            [](auto& x, auto& y) { return x.type_as(y); })
      .sample("wider", {f32(2, 3), f64(1)}, [](auto& x, auto& y) { return x.type_as(y); })
      .sample("integers", {f32(2, 3), i64(1)}, [](auto& x, auto& y) { return x.type_as(y); });
  table.op("aten.contiguous")
      .over(unary_inputs(everything), [](auto& x) { return x.contiguous(); })
      .sample("channels last", {f32(2, 3, 2, 2)},
              [](auto& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); })
      .sample("channels last already", {f32(2, 3, 2, 2).channels_last()},
              [](auto& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); });
  table.op("aten.clone")
      .over(unary_inputs(everything), [](auto& x) { return x.clone(); })
      .over(
          unary_inputs(floating), [](auto& x) { return x.clone(at::MemoryFormat::Contiguous); },
          "contiguous")
      .sample("channels last", {f32(2, 3, 2, 2)},
              [](auto& x) { return x.clone(at::MemoryFormat::ChannelsLast); });
  table.op("aten.lift_fresh_copy")
      .over(unary_inputs(everything - complex), [](auto& x) { return at::lift_fresh_copy(x); })
      .over({{c64(2, 3).transposed().no_grad()}}, [](auto& x) { return at::lift_fresh_copy(x); });
  table.op("program.questions")
      .sample("1", {f32(2)},
              [](auto& x) { return at::can_cast(at::kFloat, x.scalar_type()) ? x * 2 : x; })
      .sample("2", {f64(2)}, [](auto& x) { return x.is_floating_point() ? x * 2 : x; })
      .sample("3", {f32(2, 3)},
              [](auto& x) { return at::result_type(x, 2.5) == at::kFloat ? x * 2 : x; });
}

}  // namespace

void add(SampleTable& table) {
  add_filled(table);
  add_sequences(table);
  add_conversions(table);
}

}  // namespace ahead::samples::factory_samples
