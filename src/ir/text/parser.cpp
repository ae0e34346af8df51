#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

#include <unordered_map>

#include "ahead/graph.h"
#include "base/intern.h"
#include "ir/constants.h"
#include "ir/names.h"
#include "ir/operator_hint.h"
#include "ir/signature.h"
#include "ir/text/term_parser.h"

namespace ahead {
namespace {

/// Bounds the recursion, and so the stack, on malformed text.
constexpr size_t most_nested = 64;

/// Reads one graph, from the word `graph` to the end of its return statement. Sub-graphs get a
/// parser of their own on the same lexer, since names do not reach into or out of a sub-graph.
class Parser : private TermParser {
 public:
  explicit Parser(Lexer& lexer, size_t depth = 0) : TermParser(lexer), depth_(depth) {}
  Graph graph();

 private:
  /// A result on the left of a statement's `=`; undefined if it has no metadata.
  struct Result {
    Token name;
    std::optional<TensorMeta> meta;
  };
  struct Return {
    bool is_list = false;
    std::vector<Result> results;
  };

  void input();
  void example_sizes();
  void statement();
  void output();
  std::vector<Return> returns();
  Result result();
  void add_returns(Node* node, const std::vector<Return>& returns);
  const Operator& operator_name();
  std::vector<Argument> arguments(const Operator& op);
  void fill_defaults(std::vector<Argument>& args, const Operator& op, const Token& closing);
  void attributes(Node* node);

  Argument argument(const c10::TypePtr& type);
  Argument list(const c10::TypePtr& type);
  Value* use(const Token& name);
  void define(const Token& name, Value* value);

  Graph graph_;
  size_t depth_;  ///< how many lists and graphs are open
  std::unordered_map<std::string_view, Value*> values_;
};

Value* Parser::use(const Token& name) {
  auto found = values_.find(name.text);
  if (found == values_.end()) {
    lexer_.fail(name.offset, "%" + std::string(name.text) +
                                 " is not defined here. A value must be an input or a result of an "
                                 "earlier line of the same graph.");
  }
  return found->second;
}

void Parser::define(const Token& name, Value* value) {
  if (!values_.emplace(name.text, value).second) {
    lexer_.fail(name.offset, "%" + std::string(name.text) + " is defined twice.");
  }
}

// Arguments.

Argument Parser::list(const c10::TypePtr& type) {
  const Token open = expect('[');
  const c10::ListType* expected =
      type == nullptr ? nullptr : without_optional(*type).castRaw<c10::ListType>();
  const c10::TypePtr element = expected == nullptr ? c10::TypePtr() : expected->getElementType();
  Argument::List items;
  bool of_tensors = type != nullptr && is_tensor_list_type(*type);
  ++depth_;
  separated(']', [&] {
    items.push_back(argument(element));
    of_tensors = of_tensors || items.back().is_value();
  });
  --depth_;
  if (of_tensors) return items;
  c10::impl::GenericList constants(c10::AnyType::get());
  for (const Argument& item : items) {
    if (!item.is_constant()) lexer_.fail(open.offset, "a list holds tensors or constants only.");
    constants.push_back(item.constant());
  }
  const c10::IValue untyped(constants);
  return type == nullptr ? untyped : coerce_constant(untyped, type);
}

Argument Parser::argument(const c10::TypePtr& type) {
  const Token& token = lexer_.peek();
  if (token.kind == Token::Kind::value) return use(lexer_.next());
  if (depth_ == most_nested) lexer_.fail(token.offset, "lists and graphs are nested too deeply.");
  if (token.is('[')) return list(type);
  if (token.is_word("graph"))
    return std::make_shared<const Graph>(Parser(lexer_, depth_ + 1).graph());
  const c10::IValue read = constant(type);
  return type == nullptr ? read : coerce_constant(read, type);
}

std::vector<Argument> Parser::arguments(const Operator& op) {
  static const std::vector<c10::Argument> none;
  const auto& expected = op.in_dispatcher() ? op.schema().arguments() : none;
  std::vector<Argument> args;
  expect('(');
  const Token closing = separated(')', [&] {
    const size_t offset = lexer_.peek().offset;
    const c10::Argument* formal = args.size() < expected.size() ? &expected[args.size()] : nullptr;
    if (formal == nullptr && op.in_dispatcher()) {
      lexer_.fail(offset, op.name() + " takes no more than " + std::to_string(expected.size()) +
                              " arguments.");
    }
    args.push_back(argument(formal == nullptr ? nullptr : formal->real_type()));
    if (formal == nullptr) return;
    const std::string problem = argument_problem(*formal, args.back());
    if (!problem.empty()) lexer_.fail(offset, op.name() + ": " + problem + ".");
  });
  if (op.in_dispatcher()) fill_defaults(args, op, closing);
  return args;
}

void Parser::fill_defaults(std::vector<Argument>& args, const Operator& op, const Token& closing) {
  const auto& expected = op.schema().arguments();
  while (args.size() < expected.size()) {
    const c10::Argument& formal = expected[args.size()];
    if (!formal.default_value()) {
      lexer_.fail(closing.offset, op.name() + ": argument '" + formal.name() + "' is missing.");
    }
    args.emplace_back(*formal.default_value());
  }
}

// Statements.

Parser::Result Parser::result() {
  Result result;
  if (lexer_.peek().is_word("_")) {
    lexer_.next();
    return result;
  }
  result.name = expect(Token::Kind::value, "a result");
  expect(':');
  result.meta = meta();
  result.meta->requires_grad = requires_grad();
  return result;
}

std::vector<Parser::Return> Parser::returns() {
  std::vector<Return> all;
  const Token& first = lexer_.peek();
  if (first.kind == Token::Kind::word && first.text != "_") return all;
  if (first.kind != Token::Kind::word && first.kind != Token::Kind::value && !first.is('[')) {
    lexer_.fail(first.offset, "expected a statement or 'return', found " + describe(first) + ".");
  }
  do {
    Return& entry = all.emplace_back();
    entry.is_list = accept('[');
    if (entry.is_list) {
      separated(']', [&] { entry.results.push_back(result()); });
    } else {
      entry.results.push_back(result());
    }
  } while (accept(','));
  expect('=');
  return all;
}

const Operator& Parser::operator_name() {
  const Token name = expect(Token::Kind::word, "an operator or 'return'");
  const Operator* op = Operator::find(name.text);
  if (op == nullptr) {
    lexer_.fail(name.offset,
                "unknown operator " + describe(name) + ". " + operator_hint(name.text));
  }
  return *op;
}

void Parser::add_returns(Node* node, const std::vector<Return>& returns) {
  for (const Return& entry : returns) {
    const size_t first = node->results().size();
    if (entry.is_list) {
      std::vector<std::optional<TensorMeta>> metas;
      for (const Result& result : entry.results) metas.push_back(result.meta);
      graph_.add_return_list(node, std::move(metas));
    } else {
      graph_.add_return(node, entry.results[0].meta);
    }
    for (size_t i = 0; i < entry.results.size(); ++i) {
      if (entry.results[i].meta) define(entry.results[i].name, node->result(first + i));
    }
  }
}

void Parser::attributes(Node* node) {
  for (;;) {
    const Token& token = lexer_.peek();
    if (token.kind == Token::Kind::tag) {
      const Token name = lexer_.next();
      if (name.text == backward_name) {
        node->phase = Phase::Backward;
        continue;
      }
      const TagName* known = find_tag(name.text);
      if (known == nullptr) lexer_.fail(name.offset, "unknown tag " + describe(name) + ".");
      node->set(known->tag);
    } else if (token.is_word("seq")) {
      lexer_.next();
      expect('=');
      node->sequence = integer("a sequence number");
    } else if (token.is_word("from")) {
      lexer_.next();
      expect('=');
      node->provenance = intern(lexer_.unquote(expect(Token::Kind::string, "a quoted name")));
    } else if (token.is_word("at")) {
      lexer_.next();
      expect('=');
      node->place = intern(lexer_.unquote(expect(Token::Kind::string, "a quoted place")));
    } else {
      return;
    }
  }
}

void Parser::statement() {
  const size_t offset = lexer_.peek().offset;
  const std::vector<Return> announced = returns();
  const Operator& op = operator_name();
  Node* node = graph_.add_node(op, arguments(op));
  add_returns(node, announced);
  attributes(node);
  // Only Ahead's own operators have arguments that were not checked one by one.
  std::string problem = op.in_dispatcher() ? std::string() : arguments_problem(*node);
  if (problem.empty()) problem = results_problem(*node);
  if (!problem.empty()) lexer_.fail(offset, op.name() + ": " + problem + ".");
}

void Parser::input() {
  const Token name = expect(Token::Kind::value, "an input");
  expect(':');
  TensorMeta layout = meta();
  bool needs_grad = requires_grad();
  const Slot place = slot();
  if (place.kind == Slot::Kind::Sizes) example_sizes();
  needs_grad = requires_grad() || needs_grad;
  layout.requires_grad = needs_grad;
  define(name, graph_.add_input(place, std::move(layout)));
}

void Parser::example_sizes() {
  if (!lexer_.peek().is_word("like")) return;
  lexer_.next();
  expect('[');
  std::vector<int64_t> sizes;
  separated(']', [&] { sizes.push_back(integer("a size")); });
  graph_.set_example_sizes(std::move(sizes));
}

void Parser::output() {
  Value* value = nullptr;
  if (lexer_.peek().is_word("none")) {
    lexer_.next();
  } else {
    value = use(expect(Token::Kind::value, "an output or 'none'"));
  }
  const Slot place = slot();
  graph_.add_output(value, place, requires_grad());
}

Graph Parser::graph() {
  if (!lexer_.peek().is_word("graph")) {
    lexer_.fail(lexer_.peek().offset, "expected 'graph(', found " + describe(lexer_.peek()) + ".");
  }
  lexer_.next();
  expect('(');
  separated(')', [&] { input(); });
  expect(':');
  const bool braces = accept('{');
  while (!lexer_.peek().is_word("return")) statement();
  lexer_.next();
  expect('(');
  separated(')', [&] { output(); });
  if (braces) expect('}');
  return std::move(graph_);
}

}  // namespace

Graph Graph::parse(std::string_view text) {
  Lexer lexer(text);
  Graph graph = Parser(lexer).graph();
  if (lexer.peek().kind != Token::Kind::end) {
    lexer.fail(lexer.peek().offset,
               "expected the end of the text, found " + describe(lexer.peek()) + ".");
  }
  return graph;
}

}  // namespace ahead
