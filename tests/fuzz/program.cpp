#include "fuzz/program.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "fuzz/call_numbers.h"
#include "fuzz/draft.h"
#include "fuzz/prelude.h"

namespace ahead::fuzz {
namespace {

std::string name_of(Variable variable) {
  if (is_input(variable)) return "x" + std::to_string(input_position(variable));
  return "v" + std::to_string(variable);
}

template <class Range, class Show>
std::string joined(const Range& range, Show show) {
  std::string text;
  for (const auto& element : range) text += (text.empty() ? "" : ", ") + show(element);
  return text;
}

std::string list_of(const std::vector<Variable>& variables) {
  return "{" + joined(variables, name_of) + "}";
}

/// Replaces the names of Arguments in a call's text by what an instruction has there.
class CallPrinter {
 public:
  CallPrinter(const Instruction& instruction, bool has_call_numbers)
      : instruction_(instruction),
        text_(instruction.operation->call.text),
        has_call_numbers_(has_call_numbers) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (std::isalpha(text_[at_]) == 0 && text_[at_] != '_') {
        out_ += text_[at_++];
      } else {
        replace(word());
      }
    }
    return out_;
  }

 private:
  std::string_view word() {
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(text_[at_]) != 0 || text_[at_] == '_')) ++at_;
    return text_.substr(start, at_ - start);
  }

  /// Reads `[k]`; -1 if there is none.
  int index() {
    if (at_ >= text_.size() || text_[at_] != '[') return -1;
    const size_t end = text_.find(']', at_);
    const int value = std::stoi(std::string(text_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
    return value;
  }

  void replace(std::string_view word) {
    const bool member = !out_.empty() && (out_.back() == '.' || out_.back() == ':');
    if (member) {
      out_ += word;
    } else if (word == "t") {
      const int position = index();
      out_ += position < 0 ? list_of(instruction_.operands)
                           : name_of(instruction_.operands.at(static_cast<size_t>(position)));
    } else if (word == "n") {
      out_ += text_of(instruction_.n.at(static_cast<size_t>(index())));
    } else if (word == "s") {
      out_ += text_of(instruction_.s.at(static_cast<size_t>(index())));
    } else if (word == "dims") {
      out_ += "{" + joined(instruction_.dims, [&](int64_t dim) { return text_of(dim); }) + "}";
    } else if (word == "type") {
      out_ += std::string("at::k") + c10::toString(instruction_.type);
    } else {
      out_ += word;
    }
  }

  template <class Value>
  std::string text_of(const Value& value) const {
    if (has_call_numbers_) return name_in_call(value);
    return Number(value).str();
  }

  const Instruction& instruction_;
  std::string_view text_;
  bool has_call_numbers_;
  size_t at_ = 0;
  std::string out_;
};

std::string line_of(const Instruction& instruction, Variable first, bool has_call_numbers) {
  const std::string call = CallPrinter(instruction, has_call_numbers).run();
  std::vector<Variable> results;
  for (int i = 0; i < instruction.num_results; ++i) results.push_back(first + i);
  switch (instruction.operation->call.form) {
    case Form::Nothing:
      return call + ";";
    case Form::One:
      return "at::Tensor " + name_of(first) + " = " + call + ";";
    case Form::Tuple:
      return "auto [" + joined(results, name_of) + "] = " + call + ";";
    case Form::List: {
      const std::string list = "list" + std::to_string(first);
      int next = 0;
      return "const Tensors " + list + " = " + call + "; at::Tensor " +
             joined(results,
                    [&](Variable result) {
                      return name_of(result) + " = " + list + "[" + std::to_string(next++) + "]";
                    }) +
             ";";
    }
  }
  return "";
}

}  // namespace

std::string Number::str() const {
  if (scalar_.isIntegral(false)) return std::to_string(scalar_.toLong());
  const double value = scalar_.toDouble();
  std::ostringstream text;
  text.precision(17);
  text << value;
  return value == std::floor(value) && std::isfinite(value) ? text.str() + ".0" : text.str();
}

Variable Program::first_result(size_t line) const {
  Variable first = 0;
  for (size_t i = 0; i < line; ++i) first += body[i].num_results;
  return first;
}

std::string Program::str() const {
  std::ostringstream out;
  std::vector<Variable> arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    out << "const at::Tensor x" << i << " = " << inputs[i].str() << ";\n";
    if (!inputs[i].captured) arguments.push_back(input_variable(i));
  }
  if (no_grad) out << "at::NoGradGuard whole_program;\n";
  out << "const auto function = [=](const Tensors& in"
      << (has_call_numbers ? ", double rate, int64_t count" : "") << ") -> Tensors {\n";
  for (size_t i = 0; i < arguments.size(); ++i) {
    out << "  const at::Tensor " << name_of(arguments[i]) << " = in[" << i << "];\n";
  }
  if (const auto place = batch_place(*this)) {
    out << "  const int64_t batch = " << name_of(input_variable(place->input)) << ".size("
        << place->dim << ");\n";
  }
  const bool has_autocast =
      std::any_of(body.begin(), body.end(), [](const Instruction& line) { return line.autocast; });
  if (has_autocast) out << "  std::optional<Autocast> autocast;\n";
  Variable next = 0;
  bool quiet = false;
  for (const Instruction& instruction : body) {
    if (instruction.no_grad != quiet) {
      quiet = instruction.no_grad;
      out << "  at::GradMode::set_enabled(" << (quiet ? "false" : "true") << ");\n";
    }
    if (instruction.autocast) out << "  autocast.emplace();\n";
    out << "  " << line_of(instruction, next, has_call_numbers) << "\n";
    if (instruction.autocast) out << "  autocast.reset();\n";
    next += instruction.num_results;
  }
  if (quiet) out << "  at::GradMode::set_enabled(true);\n";
  out << "  return " << list_of(results) << ";\n};\n";
  out << "const Tensors arguments = " << list_of(arguments) << ";\n";
  return out.str();
}

const at::Tensor& Machine::get(Variable variable) const {
  if (is_input(variable)) return inputs_.at(input_position(variable));
  return values_.at(static_cast<size_t>(variable));
}

Tensors Machine::run(const Instruction& instruction) const {
  Arguments arguments{{}, instruction.n, instruction.s, instruction.dims, instruction.type};
  for (Variable operand : instruction.operands) arguments.t.push_back(get(operand));
  std::optional<at::NoGradGuard> guard;
  if (instruction.no_grad) guard.emplace();
  std::optional<Autocast> autocast;
  if (instruction.autocast) autocast.emplace();
  return instruction.operation->call.run(arguments);
}

int Machine::step_and_count(const Instruction& instruction) {
  Tensors results = run(instruction);
  values_.insert(values_.end(), results.begin(), results.end());
  return static_cast<int>(results.size());
}

void Machine::step(const Instruction& instruction) {
  const int count = step_and_count(instruction);
  TORCH_CHECK(count >= instruction.num_results, "the call gave ", count, " results");
  values_.resize(values_.size() - static_cast<size_t>(count - instruction.num_results));
}

aot::FlatFunction function_of(const Program& program, const Tensors& inputs) {
  return [&program, inputs](const Tensors& arguments) {
    Tensors all = inputs;
    size_t next = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!program.inputs[i].captured) all[i] = arguments.at(next++);
    }
    Machine machine(std::move(all));
    for (const Instruction& instruction : program.body) machine.step(instruction);
    Tensors results;
    for (Variable result : program.results) results.push_back(machine.get(result));
    return results;
  };
}

Tensors arguments_of(const Program& program, const Tensors& inputs) {
  Tensors arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!program.inputs[i].captured) arguments.push_back(inputs[i]);
  }
  return arguments;
}

}  // namespace ahead::fuzz
