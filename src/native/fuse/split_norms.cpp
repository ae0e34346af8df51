#include "native/fuse/split_norms.h"

#include "ir/tensor_meta.h"

namespace ahead::native {
namespace {

bool is_plain(const Argument& argument) {
  return !argument.is_value() || argument.value()->meta.dtype == at::kFloat;
}

/// Whether all of a tensor's channels lie together, pixel by pixel.
bool has_channels_innermost(const TensorMeta& meta) {
  if (!meta.is_fixed() || !meta.device.is_cpu() || meta.sizes.size() != 4) return false;
  const at::IntArrayRef sizes = meta.sizes, strides = meta.strides;
  const int64_t channels = sizes[1], width = sizes[3], height = sizes[2];
  return channels > 1 && width * height * sizes[0] > 1 && meta.numel() != 0 && strides[1] == 1 &&
         strides[3] == channels && strides[2] == channels * width &&
         strides[0] == channels * width * height;
}

/// Writes a norm as other operators, in front of it. All numbers of a channel are tensors of
/// [1, channels, 1, 1].
class Splitter {
 public:
  Splitter(Graph& graph, Node& norm, size_t image)
      : graph_(graph),
        norm_(norm),
        image_(norm.args()[image].value()->meta),
        channels_(image_.sizes[1].fixed()),
        pixels_(static_cast<double>(image_.numel().fixed()) / static_cast<double>(channels_)) {}

  void forward() {
    const Argument x = norm_.args()[0];
    Value* const mean = mean_of(x);
    // Computed twice rather than written.
    Value* const centred = pixelwise("aten.sub.Tensor", x, mean, 1);
    Value* const variance = mean_of(pixelwise("aten.mul.Tensor", centred, centred));
    Value* const scale =
        channelwise("aten.rsqrt", {channelwise("aten.add.Tensor", {variance, norm_.args()[7], 1})});
    Value* const factor = has(1) ? channelwise("aten.mul.Tensor", {scale, given(1)}) : scale;
    Value* y = pixelwise("aten.mul.Tensor", pixelwise("aten.sub.Tensor", x, mean, 1), factor);
    if (has(2)) y = pixelwise("aten.add.Tensor", y, given(2), 1);
    give(0, y);
    give(1, flat(mean));
    give(2, flat(scale));
    const double momentum = norm_.args()[6].constant().toDouble();
    give_statistic(3, mean, momentum, 1);
    give_statistic(4, variance, momentum, pixels_ / (pixels_ - 1));
  }

  void backward() {
    const Argument grad = norm_.args()[0], x = norm_.args()[1];
    Value *const mean = given(5), *const scale = given(6);
    Value* const sum = sum_of(grad);
    Value* const product =
        pixelwise("aten.mul.Tensor", grad, pixelwise("aten.sub.Tensor", x, mean, 1));
    Value* const weighted = channelwise("aten.mul.Tensor", {sum_of(product), scale});
    if (is_wanted(0)) {
      Value* const slope = channelwise(
          "aten.mul.Tensor", {channelwise("aten.mul.Tensor", {weighted, scale}), 1 / pixels_});
      Value* const shift = channelwise("aten.mul.Tensor", {sum, 1 / pixels_});
      Value* const off =
          pixelwise("aten.mul.Tensor", pixelwise("aten.sub.Tensor", x, mean, 1), slope);
      Value* const rest =
          pixelwise("aten.sub.Tensor", pixelwise("aten.sub.Tensor", grad, shift, 1), off, 1);
      Value* const factor = has(2) ? channelwise("aten.mul.Tensor", {scale, given(2)}) : scale;
      give(0, pixelwise("aten.mul.Tensor", rest, factor));
    }
    give(1, flat(weighted));
    give(2, flat(sum));
  }

 private:
  bool has(size_t argument) const { return norm_.args()[argument].is_value(); }
  bool is_wanted(size_t result) const {
    return norm_.results()[result] != nullptr && norm_.results()[result]->is_used();
  }

  TensorMeta meta_of(c10::ArrayRef<int64_t> sizes) const {
    return TensorMeta::contiguous(sizes, at::kFloat, image_.device);
  }

  Value* add(const char* op, std::vector<Argument> args, TensorMeta meta) {
    Node* node = graph_.add_node(*Operator::find(op), std::move(args), &norm_);
    node->belong_to(norm_);
    meta.requires_grad = false;
    meta.offset = 0;
    return graph_.add_return(node, std::move(meta));
  }

  template <class... More>
  Value* pixelwise(const char* op, const Argument& image, Value* other, More... more) {
    return add(op, {image, other, Argument(more)...}, image_);
  }
  Value* channelwise(const char* op, std::vector<Argument> args) {
    return add(op, std::move(args), meta_of({1, channels_, 1, 1}));
  }
  Value* over_pixels(const char* op, const Argument& image) {
    return channelwise(op,
                       {image, c10::IValue(std::vector<int64_t>{0, 2, 3}), true, c10::IValue()});
  }
  Value* mean_of(const Argument& image) { return over_pixels("aten.mean.dim", image); }
  Value* sum_of(const Argument& image) { return over_pixels("aten.sum.dim_IntList", image); }

  /// An argument of the norm that has a number for each channel.
  Value* given(size_t argument) {
    return channelwise("aten.view", {norm_.args()[argument],
                                     c10::IValue(std::vector<int64_t>{1, channels_, 1, 1})});
  }
  Value* flat(Value* value) {
    return add("aten.view", {value, c10::IValue(std::vector<int64_t>{channels_})},
               meta_of({channels_}));
  }

  void give(size_t result, Value* value) {
    if (is_wanted(result)) graph_.replace_uses(norm_.result(result), value);
  }

  void give_statistic(size_t result, Value* found, double momentum, double factor) {
    if (!is_wanted(result)) return;
    Value* const old = channelwise("aten.mul.Tensor", {given(result), 1 - momentum});
    Value* const part = channelwise("aten.mul.Tensor", {found, momentum * factor});
    give(result, flat(channelwise("aten.add.Tensor", {old, part, 1})));
  }

  Graph& graph_;
  Node& norm_;
  const TensorMeta image_;
  const int64_t channels_;
  const double pixels_;
};

bool is_splittable(const Node& node, size_t first_image, size_t last_image, size_t training) {
  for (const Argument& argument : node.args()) {
    if (!is_plain(argument)) return false;
  }
  for (size_t i = first_image; i <= last_image; ++i) {
    if (!node.args()[i].is_value() || !has_channels_innermost(node.args()[i].value()->meta))
      return false;
  }
  const Value* result = node.result(0);
  const bool lies_alike = result == nullptr || has_channels_innermost(result->meta);
  return lies_alike && node.args()[training].constant().toBool();
}

}  // namespace

size_t split_norms(Graph& graph) {
  static const Operator* const forward = Operator::find("aten._native_batch_norm_legit_functional");
  static const Operator* const backward = Operator::find("aten.native_batch_norm_backward");
  size_t changes = 0;
  for (Node* node = graph.first(); node != nullptr;) {
    Node* const next = node->next();
    if (&node->op() == forward && is_splittable(*node, 0, 0, 5)) {
      Splitter(graph, *node, 0).forward();
    } else if (&node->op() == backward && is_splittable(*node, 0, 1, 7)) {
      Splitter(graph, *node, 1).backward();
    } else {
      node = next;
      continue;
    }
    graph.erase(node);
    ++changes;
    node = next;
  }
  return changes;
}

}  // namespace ahead::native
