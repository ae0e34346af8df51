#pragma once

#include <torch/custom_class.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

/// Operators with effects that a test can look at: what they were called with is written down.
namespace ahead::journal {

/// What was written down so far, in order; reading it empties it.
std::vector<std::string> take();

/// `journal::note(str label, Tensor x) -> ()`, one kernel for all devices.
void note(const std::string& label, const at::Tensor& x);
/// `journal::mark(str label) -> ()`.
void mark(const std::string& label);
/// `journal::jot(str label, Tensor x) -> ()`, registered without a dispatch key: composite.
void jot(const std::string& label, const at::Tensor& x);
/// `journal::copy(str label, Tensor x) -> Tensor`: a clone, of which only the schema is known.
at::Tensor copy(const std::string& label, const at::Tensor& x);
/// `journal::halve(str label, Tensor x) -> Tensor`, composite, with LibTorch's gradients inside.
at::Tensor halve(const std::string& label, const at::Tensor& x);
/// `journal::square(Tensor x) -> Tensor`, with a tag that says that it is pure; it is not.
at::Tensor square(const at::Tensor& x);
/// `journal::length(Tensor x) -> int`.
int64_t length(const at::Tensor& x);

/// Counts what it is given.
struct Counter : torch::CustomClassHolder {
  int64_t calls = 0;
};
/// `journal::count(Counter counter, Tensor x) -> ()`.
void count(const c10::intrusive_ptr<Counter>& counter, const at::Tensor& x);

/// First in, first out.
struct Queue : torch::CustomClassHolder {
  std::vector<at::Tensor> items;
};
/// `journal::push(Queue queue, Tensor x) -> ()`.
void push(const c10::intrusive_ptr<Queue>& queue, const at::Tensor& x);
/// `journal::pop(Queue queue) -> Tensor`.
at::Tensor pop(const c10::intrusive_ptr<Queue>& queue);

/// What an action prints to std::cout.
std::string printed(const std::function<void()>& action);

/// The identity; its backward notes the gradient.
struct NoteGradient : torch::autograd::Function<NoteGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const std::string& label) {
    ctx->saved_data["label"] = label;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    note(ctx->saved_data["label"].toStringRef(), grads[0]);
    return {grads[0], at::Tensor()};
  }
};

}  // namespace ahead::journal
