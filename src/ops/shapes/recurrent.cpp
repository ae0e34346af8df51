#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool defined(const OptionalTensor& tensor) {
  return tensor && tensor->defined();
}

Tensor make_contiguous(const Tensor& self) {
  return make(self.sizes(), self.scalar_type());
}

void check_gates(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hidden,
                 const OptionalTensor& input_bias, int64_t factor) {
  TORCH_CHECK(input_gates.dim() == 2, "Expected 2-dimensional input_gates, but got ",
              input_gates.sizes());
  TORCH_CHECK(input_gates.sizes() == hidden_gates.sizes(),
              "Expected input_gates and hidden_gates of the same size, but got ",
              input_gates.sizes(), " and ", hidden_gates.sizes());
  TORCH_CHECK(hidden.dim() == 2 && hidden.numel() * factor == input_gates.numel(),
              "The state of size ", hidden.sizes(), " does not match gates of size ",
              input_gates.sizes());
  TORCH_CHECK(!defined(input_bias) || input_bias->numel() == input_gates.size(1),
              "Expected a bias of ", input_gates.size(1), " elements");
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const OptionalTensor& input_bias,
                                             const OptionalTensor&) {
  check_gates(input_gates, hidden_gates, cx, input_bias, 4);
  return {make_contiguous(cx), make_contiguous(cx), make_contiguous(input_gates)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                      const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor&,
                                                      const Tensor& workspace, bool has_bias) {
  if (!defined(grad_hy) && !defined(grad_cy)) return {};
  return {make_contiguous(workspace), make_contiguous(cx),
          has_bias ? make({workspace.size(1)}, workspace.scalar_type()) : Tensor()};
}

// What the forward of a GRU cell keeps for its backward, in units of the state.
constexpr int64_t gru_workspace = 5;

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hx, const OptionalTensor& input_bias,
                                    const OptionalTensor&) {
  check_gates(input_gates, hidden_gates, hx, input_bias, 3);
  return {make_contiguous(hx), make({hx.size(0), hx.size(1) * gru_workspace}, hx.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  const int64_t gates = workspace.size(1) / gru_workspace * 3;
  const auto gate_grad = [&] { return make({workspace.size(0), gates}, workspace.scalar_type()); };
  const auto bias_grad = [&] {
    return has_bias ? make({gates}, workspace.scalar_type()) : Tensor();
  };
  return {gate_grad(), gate_grad(), make_contiguous(grad_hy), bias_grad(), bias_grad()};
}

// oneDNN computes all gradients of a layer in single precision.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> mkldnn_layer_backward(
    const Tensor& input, const Tensor& input_weight, const Tensor& hidden_weight, const Tensor&,
    const Tensor&, const Tensor& hx, const Tensor& cx, const Tensor&, const Tensor&, const Tensor&,
    const OptionalTensor& grad_output, const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
    bool, int64_t, int64_t, int64_t, bool, bool, bool, IntArrayRef, bool, const Tensor&) {
  if (!defined(grad_output) && !defined(grad_hy) && !defined(grad_cy)) return {};
  const auto grad = [](IntArrayRef sizes) { return make(sizes, at::kFloat); };
  const int64_t gates = input_weight.size(0);
  return {grad(input.sizes()),
          grad(input_weight.sizes()),
          grad(hidden_weight.sizes()),
          grad(gates),
          grad(gates),
          grad(hx.sizes()),
          grad(cx.sizes())};
}

std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>> cudnn_backward(
    const Tensor& input, at::TensorList weight, int64_t, const Tensor&, const Tensor& hx,
    const OptionalTensor& cx, const Tensor&, const OptionalTensor& grad_output,
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, int64_t, int64_t, int64_t,
    int64_t, bool batch_first, double, bool train, bool, IntArrayRef batch_sizes,
    const OptionalTensor&, const Tensor&, std::array<bool, 4> mask) {
  if (!defined(grad_output) && !defined(grad_hy) && !defined(grad_cy)) {
    return {Tensor(), Tensor(), Tensor(), std::vector<Tensor>(weight.size())};
  }
  TORCH_CHECK(train, "cudnn RNN backward can only be called in training mode");
  Tensor grad_input = make_contiguous(input);
  // cuDNN's order is time first.
  if (batch_first && batch_sizes.empty()) {
    const int64_t batch = input.size(0), features = input.size(2);
    grad_input = make_strided(input.sizes(), {features, batch * features, 1}, input.scalar_type());
  }
  std::vector<Tensor> grad_weight;
  if (mask[3]) {
    for (const Tensor& part : weight) grad_weight.push_back(make_contiguous(part));
  }
  return {grad_input, make_contiguous(hx), defined(cx) ? make_contiguous(*cx) : Tensor(),
          grad_weight};
}

}  // namespace

void add_recurrent_rules(ShapeRules& rules) {
  rules.add("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  rules.add("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  rules.add("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  rules.add("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
  // How large their workspaces are is known to oneDNN and cuDNN only.
  rules.add_unknowable("mkldnn_rnn_layer");
  rules.add_unknowable("_cudnn_rnn");
  rules.add("mkldnn_rnn_layer_backward", TORCH_FN(mkldnn_layer_backward));
  rules.add("_cudnn_rnn_backward", TORCH_FN(cudnn_backward));
  rules.add_layout("mkldnn_rnn_layer_backward", like_layout<0, 1, 2, 3, 4, 5, 6>);
}

}  // namespace ahead::ops::shapes
