#include "ops/families.h"

// Writes that are not pointwise arithmetic, and programs in which views and writes meet.
namespace ahead::samples::in_place_samples {
namespace {

void add_fills(SampleTable& table) {
  table.op("aten.zero_").in_place_over(writable_inputs(everything), [](auto& x) {
    return x.zero_();
  });
  table.op("aten.fill_")
      .in_place_over(
          writable_inputs(everything), [](auto& x) { return x.fill_(1); }, "number")
      .in_place("tensor", {f32(2, 3), f32()}, [](auto& x, auto& v) { return x.fill_(v); })
      .in_place("integer tensor", {f32(2, 3), i64()}, [](auto& x, auto& v) { return x.fill_(v); });
  table.op("aten.copy_")
      .in_place_over(writable_binary_inputs(everything),
                     [](auto& x, auto& y) { return x.copy_(y); })
      .in_place("from another type", {f32(2, 3), f64(2, 3)},
                [](auto& x, auto& y) { return x.copy_(y); })
      .in_place("from integers", {f32(2, 3), i64(3)}, [](auto& x, auto& y) { return x.copy_(y); })
      .in_place("to integers", {i64(2, 3), f32(2, 3)}, [](auto& x, auto& y) { return x.copy_(y); })
      .in_place("from half", {f32(2, 3), f16(2, 3).transposed()},
                [](auto& x, auto& y) { return x.copy_(y); });
  table.op("aten.fill_diagonal_")
      .over({{f32(3, 3)},
             {f64(4, 4)},
             {f32(3, 5)},
             {bf16(3, 3)},
             {f16(4, 3).transposed()},
             {i64(3, 3)},
             {c64(3, 3)},
             {f32(3, 3, 3)}},
            [](auto& x) { return (x * 2).fill_diagonal_(2); })
      .sample("argument", {f32(3, 4).transposed()}, [](auto& x) { x.fill_diagonal_(2); })
      .sample("tall, wrapped", {f32(7, 3)},
              [](auto& x) { return (x * 2).fill_diagonal_(2, true); });
  table.op("aten.tril_").in_place("1", {f32(3, 4)}, [](auto& x) { return x.tril_(1); });
  table.op("aten.triu_").in_place("-1", {f32(3, 4)}, [](auto& x) { return x.triu_(-1); });
}

/// In-place changes of sizes and strides, of intermediates only: an argument keeps its metadata.
void add_reshaping(SampleTable& table) {
  const std::vector<Inputs> matrices = {
      {f32(2, 3)}, {f32(2, 3).transposed()}, {i64(2, 3)}, {c64(2, 3)}};
  table.op("aten.t_").over(matrices, [](auto& x) { return x.clone().t_().mul_(2); });
  table.op("aten.transpose_").over(matrices, [](auto& x) {
    return x.clone().transpose_(0, 1).mul_(2);
  });
  table.op("aten.swapaxes_").over(matrices, [](auto& x) { return x.clone().swapaxes_(0, 1); });
  table.op("aten.swapdims_").over(matrices, [](auto& x) { return x.clone().swapdims_(0, 1); });
  table.op("aten.squeeze_").over(matrices, [](auto& x) {
    return x.unsqueeze(0).clone().squeeze_().mul_(2);
  });
  table.op("aten.squeeze_")
      .over(
          matrices, [](auto& x) { return x.unsqueeze(0).clone().squeeze_(0); }, "dim");
  table.op("aten.unsqueeze_").over(matrices, [](auto& x) {
    return x.clone().unsqueeze_(0).mul_(2);
  });
  table.op("aten.as_strided_")
      .over({{f32(2, 3).no_grad()}, {i64(2, 3)}, {c64(2, 3).no_grad()}},
            [](auto& x) { return x.clone().as_strided_({3}, {2}); });
  table.op("aten.detach_").over(matrices, [](auto& x) { return (x * 2).detach_(); });
}

void add_programs(SampleTable& table) {
  auto builder = table.op("program.views_and_writes");
  builder
      .sample("write through a view of a view", {f32(4, 6)},
              [](auto& x) { x.slice(1, 0, 4).transpose(0, 1).select(0, 1).add_(1); })
      .sample("view made before the write is read after it", {f32(4, 6)},
              [](auto& x) {
                const at::Tensor y = x.clone(), view = y.t();
                y.mul_(2);
                return view + 1;
              })
      .sample("write to one of two overlapping views", {f32(6)},
              [](auto& x) {
                const at::Tensor y = x.clone();
                y.slice(0, 0, 4).mul_(2);
                return std::make_tuple(y.slice(0, 2, 6), y);
              })
      .sample("write through an expanded view's base", {f32(3)},
              [](auto& x) {
                const at::Tensor y = x.clone(), wide = y.expand({2, 3});
                y.add_(1);
                return wide * 2;
              })
      .sample("copy between halves", {f32(4, 3)},
              [](auto& x) {
                const at::Tensor y = x * 1;
                y.slice(0, 0, 2).copy_(y.slice(0, 2, 4));
                return y;
              })
      .sample("argument written twice and read between", {f32(3)},
              [](auto& x) {
                x.mul_(2);
                const at::Tensor y = x + 1;
                x.add_(y);
                return y;
              })
      .sample("two arguments written", {f32(3), f32(3)},
              [](auto& x, auto& y) {
                x.add_(y);
                y.mul_(x);
              })
      .sample("write to an argument through unbind", {f32(4, 3)},
              [](auto& x) { x.select(0, 1).mul_(x.select(0, 2).clone()); })
      .sample("write to an argument through a diagonal", {f32(3, 3)},
              [](auto& x) { return x.diagonal().mul_(2); })
      .sample("detached write", {f32(3)}, [](auto& x) { return x.clone().detach().mul_(2) + x; })
      .sample("write without grad", {f32(3)},
              [](auto& x) {
                const at::Tensor y = x.clone();
                {
                  at::NoGradGuard guard;
                  y.mul_(2);
                }
                return y * x;
              })
      .sample("result returned twice", {f32(3)},
              [](auto& x) {
                const at::Tensor y = x * 2;
                return std::make_tuple(y, y);
              })
      .sample("argument returned", {f32(3), f32(3)},
              [](auto& x, auto& y) { return std::make_tuple(x, x * y); })
      .sample("a result and a view of it", {f32(2, 3)},
              [](auto& x) {
                const at::Tensor y = x.exp();
                return std::make_tuple(y, y.t());
              })
      .sample("no result", {f32(3)}, [](auto& x) { x.exp(); })
      .sample("result does not depend on the argument", {f32(3)},
              [](auto& x) { return at::ones(x.sizes()); })
      .sample("undefined result", {f32(3)},
              [](auto& x) { return std::make_tuple(x * 2, at::Tensor()); });
  builder.not_differentiable().sample("write to an argument through split", {f32(4, 3)},
                                      [](auto& x) { x.split(2)[1].mul_(3); });
}

}  // namespace

void add(SampleTable& table) {
  add_fills(table);
  add_reshaping(table);
  add_programs(table);
}

}  // namespace ahead::samples::in_place_samples
