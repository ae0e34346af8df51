#include "compile/describe_meta.h"

#include <sstream>

namespace ahead::compiling {
namespace {

using tracing::InputFacts;
using tracing::JointTrace;
using tracing::ResultFacts;

const char* name_of(ResultFacts::Kind kind) {
  constexpr const char* names[] = {"undefined",      "new",
                                   "input",          "result",
                                   "view of input",  "view of result",
                                   "view of a base", "custom view of input"};
  return names[static_cast<size_t>(kind)];
}

void describe_input(std::ostream& text, const InputFacts& facts) {
  if (facts.writes != 0) text << ", version raised by " << facts.writes;
  if (facts.seen_by_autograd) text << ", written to as autograd sees";
  if (facts.new_geometry) text << ", becomes " << facts.new_geometry->str();
  if (facts.new_memory) text << ", gets the memory of output " << facts.new_memory->index;
  if (facts.new_requires_grad)
    text << (*facts.new_requires_grad ? ", requires grad afterwards" : ", requires no grad then");
  if (facts.grad_of >= 0) text << ", the grad of input " << facts.grad_of;
  if (facts.same_as >= 0) text << ", the same as input " << facts.same_as;
  if (facts.reached.defined()) text << ", reached by the function itself";
  if (facts.backward_write)
    text << ", written to in the backward, version raised by "
         << facts.backward_write->version_bumps;
}

void describe_result(std::ostream& text, const ResultFacts& facts) {
  text << name_of(facts.kind);
  if (facts.base >= 0) text << " " << facts.base;
  if (facts.requires_grad) text << (facts.is_leaf ? ", a leaf" : ", requires grad");
  if (facts.is_inference) text << ", an inference tensor";
  if (facts.is_one_of_several) text << ", one of several views";
  if (facts.version != 0) text << ", at version " << facts.version;
}

void describe_culprit(std::ostream& text, const char* what, const std::optional<Culprit>& culprit) {
  if (culprit) text << what << ": " << culprit->name << "\n";
}

}  // namespace

std::string describe_meta(const JointTrace& trace) {
  std::ostringstream text;
  for (size_t i = 0; i < trace.inputs.size(); ++i) {
    const Graph::Input& input = trace.graph.inputs()[i];
    text << "input " << i << ": " << input.slot.str() << " " << input.value->meta.str();
    describe_input(text, trace.inputs[i]);
    text << "\n";
  }
  for (size_t i = 0; i < trace.results.size(); ++i) {
    text << "result " << i << ": ";
    describe_result(text, trace.results[i]);
    text << "\n";
  }
  for (const JointTrace::TangentWrite& write : trace.tangent_writes)
    text << "tangent " << write.tangent << ": written to in the backward\n";
  describe_culprit(text, "custom gradient", trace.opaque_gradient);
  describe_culprit(text, "hidden write", trace.hidden_write);
  describe_culprit(text, "cast in the backward", trace.cast_in_backward);
  if (trace.differentiates) text << "takes gradients itself\n";
  return text.str();
}

}  // namespace ahead::compiling
