#include "ops/families.h"

namespace ahead::samples::nn_rnn_samples {
namespace {

constexpr int64_t input_size = 4, hidden_size = 6, batch = 3, time = 5;

/// The sequence, the states and the weights of a recurrent network. The first `states` tensors
/// after the sequence are states; weights are those of one layer after another.
struct Network {
  int64_t gates;
  int64_t states;
  int64_t layers = 1;
  int64_t directions = 1;
  bool bias = true;
};

Inputs inputs_of(const Network& net, const Input& sequence, at::ScalarType dtype = at::kFloat) {
  Inputs inputs{sequence};
  for (int64_t i = 0; i < net.states; ++i)
    inputs.push_back(tensor(dtype, net.layers * net.directions, batch, hidden_size));
  for (int64_t i = 0; i < net.layers * net.directions; ++i) {
    const int64_t features = i < net.directions ? input_size : net.directions * hidden_size;
    inputs.push_back(tensor(dtype, net.gates * hidden_size, features));
    inputs.push_back(tensor(dtype, net.gates * hidden_size, hidden_size));
    if (!net.bias) continue;
    inputs.push_back(tensor(dtype, net.gates * hidden_size));
    inputs.push_back(tensor(dtype, net.gates * hidden_size));
  }
  return inputs;
}

at::TensorList states_of(const Tensors& in, const Network& net) {
  return at::TensorList(in).slice(1, static_cast<size_t>(net.states));
}

at::TensorList weights_of(const Tensors& in, const Network& net) {
  return at::TensorList(in).slice(1 + static_cast<size_t>(net.states));
}

using Layer = std::tuple<at::Tensor, at::Tensor> (*)(const at::Tensor&, const at::Tensor&,
                                                     at::TensorList, bool, int64_t, double, bool,
                                                     bool, bool);

Fn run_lstm(const Network& net, bool batch_first) {
  return [net, batch_first](const Tensors& in) {
    return detail::to_list(at::lstm(in[0], states_of(in, net), weights_of(in, net), net.bias,
                                    net.layers, 0.0, true, net.directions == 2, batch_first));
  };
}

Fn run_layer(const Network& net, bool batch_first, Layer layer) {
  return [net, batch_first, layer](const Tensors& in) {
    return detail::to_list(layer(in[0], states_of(in, net)[0], weights_of(in, net), net.bias,
                                 net.layers, 0.0, true, net.directions == 2, batch_first));
  };
}

/// `run` makes the function of a network for a sequence with the time or the batch first.
template <class Run>
void add_network(SampleTable& table, const char* name, Network net, const Run& run) {
  const Input sequence = f32(time, batch, input_size);
  auto builder = table.op(name);
  builder.sample("time first", inputs_of(net, sequence), run(net, false));
  builder.sample("batch first", inputs_of(net, f32(batch, time, input_size)), run(net, true));
  builder.sample("permuted", inputs_of(net, sequence.permuted()), run(net, false));
  builder.sample("bf16", inputs_of(net, bf16(time, batch, input_size), at::kBFloat16),
                 run(net, false));
  Network plain = net;
  plain.bias = false;
  builder.sample("without bias", inputs_of(plain, sequence), run(plain, false));
  Network deep = net;
  deep.layers = 2;
  builder.sample("two layers", inputs_of(deep, sequence), run(deep, false));
  deep.directions = 2;
  builder.sample("two layers, both directions", inputs_of(deep, sequence), run(deep, false));
  builder.sample("f64", inputs_of(net, f64(time, batch, input_size), at::kDouble), run(net, false));
}

Inputs cell_inputs(int64_t gates, at::ScalarType dtype) {
  return {tensor(dtype, batch, input_size),
          tensor(dtype, batch, hidden_size),
          tensor(dtype, gates * hidden_size, input_size),
          tensor(dtype, gates * hidden_size, hidden_size),
          tensor(dtype, gates * hidden_size),
          tensor(dtype, gates * hidden_size)};
}

void add_cells(SampleTable& table) {
  const auto lstm = [](auto& x, auto& h, auto& w, auto& u, auto& b, auto& c) {
    return at::lstm_cell(x, {h, h.sin()}, w, u, b, c);
  };
  const auto gru = [](auto& x, auto& h, auto& w, auto& u, auto& b, auto& c) {
    return at::gru_cell(x, h, w, u, b, c);
  };
  const auto tanh = [](auto& x, auto& h, auto& w, auto& u, auto& b, auto& c) {
    return at::rnn_tanh_cell(x, h, w, u, b, c);
  };
  const auto relu = [](auto& x, auto& h, auto& w, auto& u, auto& b, auto& c) {
    return at::rnn_relu_cell(x, h, w, u, b, c);
  };
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    table.op("aten.lstm_cell").over({cell_inputs(4, dtype)}, lstm);
    table.op("aten.gru_cell").over({cell_inputs(3, dtype)}, gru);
    table.op("aten.rnn_tanh_cell").over({cell_inputs(1, dtype)}, tanh);
    table.op("aten.rnn_relu_cell").over({cell_inputs(1, dtype)}, relu);
  }
}

/// One layer of oneDNN, as at::lstm calls it.
Fn run_one_dnn(bool reverse) {
  return [reverse](const Tensors& in) {
    auto [output, hy, cy, workspace] =
        at::mkldnn_rnn_layer(in[0], in[3], in[4], in[5], in[6], in[1], in[2], reverse, {}, 2,
                             hidden_size, 1, true, false, false, true);
    return Tensors{output, hy, cy};
  };
}

void add_one_dnn(SampleTable& table) {
  const Network lstm{.gates = 4, .states = 2};
  table.op("aten.mkldnn_rnn_layer")
      .sample("f32", inputs_of(lstm, f32(time, batch, input_size)), run_one_dnn(false))
      .sample("permuted", inputs_of(lstm, f32(time, batch, input_size).permuted()),
              run_one_dnn(false))
      .sample("reverse", inputs_of(lstm, f32(time, batch, input_size)), run_one_dnn(true));
}

}  // namespace

void add(SampleTable& table) {
  add_network(table, "aten.lstm", {.gates = 4, .states = 2}, run_lstm);
  const auto gru = [](const Network& net, bool first) { return run_layer(net, first, at::gru); };
  const auto tanh = [](const Network& n, bool first) { return run_layer(n, first, at::rnn_tanh); };
  const auto relu = [](const Network& n, bool first) { return run_layer(n, first, at::rnn_relu); };
  add_network(table, "aten.gru", {.gates = 3, .states = 1}, gru);
  add_network(table, "aten.rnn_tanh", {.gates = 1, .states = 1}, tanh);
  add_network(table, "aten.rnn_relu", {.gates = 1, .states = 1}, relu);
  add_cells(table);
  add_one_dnn(table);
}

}  // namespace ahead::samples::nn_rnn_samples
