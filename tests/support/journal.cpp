#include "support/journal.h"

#include <torch/library.h>

#include <iostream>
#include <mutex>
#include <sstream>

namespace ahead::journal {
namespace {

std::mutex mutex;
std::vector<std::string> lines;

void write(const std::string& line) {
  std::lock_guard<std::mutex> lock(mutex);
  lines.push_back(line);
}

/// To the bit, and it says whether there was any data.
std::string text_of(const at::Tensor& x) {
  if (!x.defined()) return "undefined";
  if (x.device().is_meta()) return "meta";
  std::ostringstream text;
  text.precision(17);
  const at::Tensor values = x.detach().to(at::kDouble).contiguous().view({-1});
  const double* const first = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) text << (i == 0 ? "" : " ") << first[i];
  return text.str();
}

void write_note(c10::string_view label, const at::Tensor& x) {
  write(std::string(label) + ": " + text_of(x));
}
void write_mark(c10::string_view label) {
  write(std::string(label));
}
at::Tensor write_copy(c10::string_view label, const at::Tensor& x) {
  write_note(label, x);
  return x.clone();
}
at::Tensor write_halve(c10::string_view label, const at::Tensor& x) {
  write_note(label, x);
  return x * 0.5;
}
at::Tensor write_square(const at::Tensor& x) {
  write_note("square", x);
  return x * x;
}
at::Tensor square_meta(const at::Tensor& x) {
  return x * x;
}
int64_t write_length(const at::Tensor& x) {
  write_note("length", x);
  return x.numel();
}
void write_count(const c10::intrusive_ptr<Counter>& counter, const at::Tensor& x) {
  ++counter->calls;
  write("count " + std::to_string(counter->calls) + ": " + text_of(x));
}
void write_push(const c10::intrusive_ptr<Queue>& queue, const at::Tensor& x) {
  write("push: " + text_of(x));
  queue->items.push_back(x.clone());
}
at::Tensor write_pop(const c10::intrusive_ptr<Queue>& queue) {
  TORCH_CHECK(!queue->items.empty(), "the queue is empty");
  at::Tensor first = queue->items.front();
  queue->items.erase(queue->items.begin());
  write("pop: " + text_of(first));
  return first;
}

template <class Signature, class... Args>
auto call(const char* name, Args&&... args) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(
      std::forward<Args>(args)...);
}

}  // namespace

std::vector<std::string> take() {
  std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(lines, {});
}

void note(const std::string& label, const at::Tensor& x) {
  call<void(c10::string_view, const at::Tensor&)>("journal::note", label, x);
}
void mark(const std::string& label) {
  call<void(c10::string_view)>("journal::mark", label);
}
void jot(const std::string& label, const at::Tensor& x) {
  call<void(c10::string_view, const at::Tensor&)>("journal::jot", label, x);
}
at::Tensor copy(const std::string& label, const at::Tensor& x) {
  return call<at::Tensor(c10::string_view, const at::Tensor&)>("journal::copy", label, x);
}
at::Tensor halve(const std::string& label, const at::Tensor& x) {
  return call<at::Tensor(c10::string_view, const at::Tensor&)>("journal::halve", label, x);
}
at::Tensor square(const at::Tensor& x) {
  return call<at::Tensor(const at::Tensor&)>("journal::square", x);
}
int64_t length(const at::Tensor& x) {
  return call<int64_t(const at::Tensor&)>("journal::length", x);
}
void count(const c10::intrusive_ptr<Counter>& counter, const at::Tensor& x) {
  call<void(const c10::intrusive_ptr<Counter>&, const at::Tensor&)>("journal::count", counter, x);
}
void push(const c10::intrusive_ptr<Queue>& queue, const at::Tensor& x) {
  call<void(const c10::intrusive_ptr<Queue>&, const at::Tensor&)>("journal::push", queue, x);
}
at::Tensor pop(const c10::intrusive_ptr<Queue>& queue) {
  return call<at::Tensor(const c10::intrusive_ptr<Queue>&)>("journal::pop", queue);
}

std::string printed(const std::function<void()>& action) {
  std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  action();
  std::cout.rdbuf(before);
  return text.str();
}

TORCH_LIBRARY(journal, m) {
  m.class_<Counter>("Counter").def(torch::init<>());
  m.class_<Queue>("Queue").def(torch::init<>());
  m.def("note(str label, Tensor x) -> ()");
  m.def("mark(str label) -> ()");
  m.def("jot(str label, Tensor x) -> ()", write_note);
  m.def("copy(str label, Tensor x) -> Tensor");
  m.def("halve(str label, Tensor x) -> Tensor", write_halve);
  m.def("square(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("length(Tensor x) -> int");
  m.def("count(__torch__.torch.classes.journal.Counter counter, Tensor x) -> ()");
  m.def("push(__torch__.torch.classes.journal.Queue queue, Tensor x) -> ()");
  m.def("pop(__torch__.torch.classes.journal.Queue queue) -> Tensor");
}

TORCH_LIBRARY_IMPL(journal, CompositeExplicitAutograd, m) {
  m.impl("note", write_note);
  m.impl("mark", write_mark);
  m.impl("copy", write_copy);
  m.impl("length", write_length);
  m.impl("count", write_count);
  m.impl("push", write_push);
  m.impl("pop", write_pop);
}

TORCH_LIBRARY_IMPL(journal, CPU, m) {
  m.impl("square", write_square);
}

TORCH_LIBRARY_IMPL(journal, Meta, m) {
  m.impl("square", square_meta);
}

}  // namespace ahead::journal
