#include <algorithm>
#include <set>

#include "ahead/errors.h"
#include "ahead/graph_signature.h"
#include "base/text.h"
#include "ir/text/lexer.h"

namespace ahead {
namespace {

using InputKind = GraphSignature::InputKind;
using OutputKind = GraphSignature::OutputKind;

/// In the order of the enumerators.
constexpr const char* input_words[] = {"parameter",  "buffer",  "constant",
                                       "user_input", "tangent", "token"};
constexpr const char* output_words[] = {"token",           "parameter_mutation",
                                        "buffer_mutation", "user_input_mutation",
                                        "user_output",     "gradient"};

template <class Kind, class Entries>
std::vector<std::string> names_in(const Entries& entries, Kind kind) {
  std::vector<std::string> names;
  for (const auto& entry : entries) {
    if (entry.kind == kind) names.push_back(entry.name);
  }
  return names;
}

template <class Kind, class Entries>
GraphSignature::Names positions_in(const Entries& entries, Kind kind) {
  GraphSignature::Names names;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind == kind) names.emplace(static_cast<int64_t>(i), entries[i].name);
  }
  return names;
}

bool is_named(const GraphSignature::Input& input, std::string_view name) {
  return input.name == name ||
         std::find(input.also.begin(), input.also.end(), name) != input.also.end();
}

GraphSignature::Names gradients_of(const GraphSignature& signature, InputKind kind) {
  GraphSignature::Names names = signature.positions_of(OutputKind::Gradient);
  for (auto entry = names.begin(); entry != names.end();) {
    const int64_t input = signature.find_input(entry->second);
    const bool is_wanted = input >= 0 && signature.inputs[static_cast<size_t>(input)].kind == kind;
    entry = is_wanted ? std::next(entry) : names.erase(entry);
  }
  return names;
}

/// The slots that inputs and outputs of these kinds have in the graph.
bool is_slot_of(InputKind kind, Slot::Kind slot) {
  if (kind == InputKind::Tangent) return slot == Slot::Kind::Tangent;
  if (kind == InputKind::Token) return slot == Slot::Kind::Token;
  return slot == Slot::Kind::Primal;
}

bool is_slot_of(OutputKind kind, Slot::Kind slot) {
  switch (kind) {
    case OutputKind::Token:
      return slot == Slot::Kind::Token;
    case OutputKind::UserOutput:
      return slot == Slot::Kind::Output;
    case OutputKind::Gradient:
      return slot == Slot::Kind::GradOf;
    default:
      return slot == Slot::Kind::MutatedInput;
  }
}

template <class Entries, class Slots>
void check_slots(const Entries& entries, const Slots& slots, const char* what) {
  if (entries.size() != slots.size()) {
    throw UserError("export", std::string(what) + "s: the signature names " +
                                  std::to_string(entries.size()) + " of them, the graph has " +
                                  std::to_string(slots.size()) + ". Name each once.");
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (is_slot_of(entries[i].kind, slots[i].slot.kind)) continue;
    throw UserError("export", std::string(what) + " " + std::to_string(i) + ", \"" +
                                  entries[i].name + "\": its slot in the graph is " +
                                  slots[i].slot.str() + ". Name it after what it is.");
  }
}

/// Reads what str() wrote.
class SignatureParser {
 public:
  explicit SignatureParser(std::string_view text) : lexer_(text) {}

  GraphSignature run() {
    while (lexer_.peek().kind != Token::Kind::end) {
      const Token word = lexer_.next();
      if (word.is_word("input")) {
        add_input();
      } else if (word.is_word("output")) {
        add_output();
      } else {
        lexer_.fail(word.offset, "expected `input` or `output`, found " + describe(word));
      }
    }
    return std::move(signature_);
  }

 private:
  template <class Kind, size_t count>
  Kind kind_among(const char* const (&words)[count]) {
    const Token word = lexer_.next();
    for (size_t i = 0; i < count; ++i) {
      if (word.is_word(words[i])) return static_cast<Kind>(i);
    }
    lexer_.fail(word.offset, "there is no such kind: " + describe(word));
  }

  std::string name() {
    const Token token = lexer_.next();
    if (token.kind != Token::Kind::string)
      lexer_.fail(token.offset, "expected a name in quotes, found " + describe(token));
    return lexer_.unquote(token);
  }

  bool accept(std::string_view word) {
    if (!lexer_.peek().is_word(word)) return false;
    lexer_.next();
    return true;
  }

  void add_input() {
    const auto kind = kind_among<InputKind>(input_words);
    signature_.inputs.push_back({kind, name()});
    while (accept("also")) signature_.inputs.back().also.push_back(name());
  }

  void add_output() {
    const auto kind = kind_among<OutputKind>(output_words);
    signature_.outputs.push_back({kind, name()});
    if (accept("loss"))
      signature_.loss_output = static_cast<int64_t>(signature_.outputs.size()) - 1;
  }

  Lexer lexer_;
  GraphSignature signature_;
};

}  // namespace

std::vector<std::string> GraphSignature::names_of(InputKind kind) const {
  return names_in(inputs, kind);
}

std::vector<std::string> GraphSignature::names_of(OutputKind kind) const {
  return names_in(outputs, kind);
}

GraphSignature::Names GraphSignature::positions_of(InputKind kind) const {
  return positions_in(inputs, kind);
}

GraphSignature::Names GraphSignature::positions_of(OutputKind kind) const {
  return positions_in(outputs, kind);
}

GraphSignature::Names GraphSignature::gradients_to_parameters() const {
  return gradients_of(*this, InputKind::Parameter);
}

GraphSignature::Names GraphSignature::gradients_to_user_inputs() const {
  return gradients_of(*this, InputKind::UserInput);
}

int64_t GraphSignature::find_input(std::string_view name) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind != InputKind::Tangent && is_named(inputs[i], name))
      return static_cast<int64_t>(i);
  }
  return -1;
}

int64_t GraphSignature::find_output(OutputKind kind, std::string_view name) const {
  const int64_t input = kind == OutputKind::UserOutput ? -1 : find_input(name);
  const std::string_view first = input < 0 ? name : inputs[static_cast<size_t>(input)].name;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind == kind && outputs[i].name == first) return static_cast<int64_t>(i);
  }
  return -1;
}

std::vector<int64_t> GraphSignature::static_inputs() const {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputKind kind = inputs[i].kind;
    if (kind == InputKind::Parameter || kind == InputKind::Buffer || kind == InputKind::Constant)
      positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

void GraphSignature::check(const Graph& graph) const {
  check_slots(inputs, graph.inputs(), "input");
  check_slots(outputs, graph.outputs(), "output");
  std::set<std::string_view> names;
  for (const Input& input : inputs) {
    if (input.kind == InputKind::Tangent || names.insert(input.name).second) continue;
    throw UserError("export", "\"" + input.name +
                                  "\": two inputs have this name. Choose others with "
                                  "ExportOptions::input_names.");
  }
}

std::string GraphSignature::str() const {
  std::string out;
  for (const Input& input : inputs) {
    out += std::string("input ") + input_words[static_cast<size_t>(input.kind)] + " ";
    append_quoted(out, input.name);
    for (const std::string& name : input.also) {
      out += " also ";
      append_quoted(out, name);
    }
    out += "\n";
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    out += std::string("output ") + output_words[static_cast<size_t>(outputs[i].kind)] + " ";
    append_quoted(out, outputs[i].name);
    out += static_cast<int64_t>(i) == loss_output ? " loss\n" : "\n";
  }
  return out;
}

GraphSignature GraphSignature::parse(std::string_view text) {
  return SignatureParser(text).run();
}

}  // namespace ahead
