#include "ahead/errors.h"
#include "ahead/graph.h"

namespace ahead {
namespace parser_errors_test {

std::string error_of(const std::string& text) {
  try {
    Graph::parse(text);
  } catch (const UserError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

/// The error for a statement in a graph with the inputs %0, %1, without the lines that show it.
std::string statement_error(const std::string& statement) {
  const std::string text = error_of("graph(%0: f32[2] Primal 0, %1: f32[2] Primal 1):\n  " +
                                    statement + "\n  return (%0 Output 0)\n");
  return text.substr(0, text.find('\n'));
}

TEST(ParserErrors, ShowTheLineWithACaret) {
  EXPECT_EQ(
      error_of("graph(%0: f32[2] Primal 0):\n  %1: f32[2] = aten.relu(%2)\n  return ()\n"),
      "[parse] line 2, column 26: %2 is not defined here. A value must be an input or a result of "
      "an earlier line of the same graph.\n"
      "    %1: f32[2] = aten.relu(%2)\n"
      "                           ^");
}

TEST(ParserErrors, KeepTabsAboveTheCaret) {
  EXPECT_EQ(error_of("graph():\n\tretrun ()"),
            "[parse] line 2, column 2: unknown operator 'retrun'. Is the library that registers it "
            "loaded?\n  \tretrun ()\n  \t^");
}

TEST(ParserErrors, NameUnknownOperatorsWithAHint) {
  EXPECT_EQ(
      statement_error("%2: f32[2] = aten.sigmiod(%0)"),
      "[parse] line 2, column 16: unknown operator 'aten.sigmiod'. Did you mean aten.sigmoid?");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.mul(%0, %1)"),
            "[parse] line 2, column 16: unknown operator 'aten.mul'. There is aten.mul.Scalar, "
            "aten.mul.Scalar_out, aten.mul.Tensor, aten.mul.out.");
  EXPECT_EQ(statement_error("%2: f32[2] = mylib.frobnicate(%0)"),
            "[parse] line 2, column 16: unknown operator 'mylib.frobnicate'. Is the library that "
            "registers it loaded?");
}

TEST(ParserErrors, CheckArguments) {
  EXPECT_EQ(statement_error("%2: f32[2] = aten.mm(%0)"),
            "[parse] line 2, column 26: aten.mm: argument 'mat2' is missing.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.mm(%0, %1, %1)"),
            "[parse] line 2, column 32: aten.mm takes no more than 2 arguments.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.view(%0, 3)"),
            "[parse] line 2, column 30: aten.view: argument 'size' must be SymInt[], not the "
            "constant 3.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.view(%0, [%1])"),
            "[parse] line 2, column 30: aten.view: argument 'size' must be SymInt[], not a list of "
            "tensors.");
  EXPECT_EQ(
      statement_error("%2: f32[2] = aten.view(%0, [1.5])"),
      "[parse] line 2, column 30: aten.view: argument 'size' must be SymInt[], not the constant "
      "[1.5].");
  EXPECT_EQ(
      statement_error("%2: f32[2] = aten.leaky_relu(%0, %1)"),
      "[parse] line 2, column 36: aten.leaky_relu: argument 'negative_slope' must be Scalar, not a "
      "tensor.");
  EXPECT_EQ(
      statement_error("%2: f32[2] = aten.cat(%0)"),
      "[parse] line 2, column 25: aten.cat: argument 'tensors' must be Tensor[], not a tensor.");
  EXPECT_EQ(
      statement_error("%2: f32[2] = aten.relu(\"x\")"),
      "[parse] line 2, column 26: aten.relu: argument 'self' must be Tensor, not the constant "
      "\"x\".");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.clone(%0, dtype.f32)"),
            "[parse] line 2, column 31: 'dtype.f32' does not go where MemoryFormat? is due.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.relu(relu)"),
            "[parse] line 2, column 26: expected an argument, found 'relu'.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.relu(graph(): { return () })"),
            "[parse] line 2, column 26: aten.relu: argument 'self' must be Tensor, not a graph.");
}

TEST(ParserErrors, CheckResults) {
  EXPECT_EQ(statement_error("%2: f32[2], %3: f32[2] = aten.relu(%0)"),
            "[parse] line 2, column 3: aten.relu: it returns 1 value, the node has 2.");
  EXPECT_EQ(statement_error("aten.relu(%0)"),
            "[parse] line 2, column 3: aten.relu: it returns 1 value, the node has 0.");
  EXPECT_EQ(
      statement_error("[%2: f32[2]] = aten.relu(%0)"),
      "[parse] line 2, column 3: aten.relu: return 0 is a list, but the operator returns Tensor.");
  EXPECT_EQ(
      statement_error("%2: f32[2] = aten.split.Tensor(%0, 1)"),
      "[parse] line 2, column 3: aten.split.Tensor: return 0 is a plain tensor, but the operator "
      "returns Tensor[].");
  EXPECT_EQ(
      statement_error("%2: f32[2] = aten.size.int(%0, 0)"),
      "[parse] line 2, column 3: aten.size.int: return 0 is a value, but the operator returns int, "
      "which must stand as undefined.");
  EXPECT_EQ(statement_error("%0: f32[2] = aten.relu(%0)"),
            "[parse] line 2, column 3: %0 is defined twice.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.relu(%2)").substr(0, 41),
            "[parse] line 2, column 26: %2 is not defi");
}

TEST(ParserErrors, CheckCalls) {
  EXPECT_EQ(statement_error("%2: f32[2] = ahead.call(%0)"),
            "[parse] line 2, column 3: ahead.call: its first argument must be a graph.");
  EXPECT_EQ(statement_error("ahead.call(graph(): { return () }, %0)"),
            "[parse] line 2, column 3: ahead.call: its graph has 0 inputs, but 1 is given.");
  EXPECT_EQ(statement_error("%2: f32[2] = ahead.call(graph(): { return () })"),
            "[parse] line 2, column 3: ahead.call: its graph has 0 outputs, the node 1 result.");
  EXPECT_EQ(
      statement_error("_ = ahead.call(graph(%0: f32[2] Primal 0): { return (%1 Output 0) }, %0)")
          .substr(0, 51),
      "[parse] line 2, column 56: %1 is not defined here. ")
      << "names do not reach into a sub-graph";
}

TEST(ParserErrors, CheckSyntax) {
  EXPECT_EQ(error_of("").substr(0, 72),
            "[parse] line 1, column 1: expected 'graph(', found the end of the text.\n");
  EXPECT_EQ(statement_error("%2 f32[2] = aten.relu(%0)"),
            "[parse] line 2, column 6: expected ':', found 'f32'.");
  EXPECT_EQ(statement_error("%2: f23[2] = aten.relu(%0)"),
            "[parse] line 2, column 7: unknown dtype 'f23'; f32, i64 or bool are some.");
  EXPECT_EQ(statement_error("%2: f32[a] = aten.relu(%0)"),
            "[parse] line 2, column 11: expected an integer, found 'a'.");
  EXPECT_EQ(statement_error("%2: f32[2] @nowhere = aten.relu(%0)"),
            "[parse] line 2, column 14: unknown device '@nowhere'.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.to.device(%0, device(\"x y\"), dtype.f32)"),
            "[parse] line 2, column 41: unknown device 'x y'.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.relu(%0) !fast"),
            "[parse] line 2, column 30: unknown tag '!fast'.");
  EXPECT_EQ(statement_error("%2: f32[99999999999999999999] = aten.relu(%0)"),
            "[parse] line 2, column 11: this number does not fit in 64 bits.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.add.Scalar(%0, 1.5x)"),
            "[parse] line 2, column 36: malformed number.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.add.Scalar(%0, -x)"),
            "[parse] line 2, column 36: expected a number after '-'.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.add.Scalar(%0, 1e)"),
            "[parse] line 2, column 36: expected digits in the exponent.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.gelu(%0, \"tanh)"),
            "[parse] line 2, column 30: this string has no end.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.gelu(%0, \"\\q\")"),
            "[parse] line 2, column 31: unknown escape; use \\n, \\t, \\\", \\\\ or \\xHH.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.relu(%0) ;"),
            "[parse] line 2, column 30: unexpected character ';'.");
  EXPECT_EQ(statement_error("%2: f32[2] = aten.view(%0, " + std::string(100, '[')),
            "[parse] line 2, column 94: lists and graphs are nested too deeply.");
}

TEST(ParserErrors, CheckInputsAndOutputs) {
  EXPECT_EQ(error_of("graph(%0: f32[2]): return ()").substr(0, 72),
            "[parse] line 1, column 17: expected a slot such as 'Primal 0', found ')'");
  EXPECT_EQ(error_of("graph(%0: f32[2] Prime 0): return ()").substr(0, 47),
            "[parse] line 1, column 18: unknown slot 'Prime'");
  EXPECT_EQ(error_of("graph(%0: f32[2] Primal 4294967296): return ()").substr(0, 61),
            "[parse] line 1, column 25: this index does not fit in 32 bits");
  EXPECT_EQ(error_of("graph(): return (%0 Output 0)").substr(0, 46),
            "[parse] line 1, column 18: %0 is not defined h");
  EXPECT_EQ(error_of("graph(): return () x").substr(0, 65),
            "[parse] line 1, column 20: expected the end of the text, found 'x");
  EXPECT_EQ(error_of("graph():\n").substr(0, 79),
            "[parse] line 2, column 1: expected a statement or 'return', found the end of th");
}

TEST(ParserErrors, NeverCrashOnBrokenText) {
  const std::string text = R"(graph(%0: f32[2, 3]{1, 2}+4 @cuda:0 Primal 0 requires_grad):
  %1: f32[2], _, %2: i64[] = aten.native_layer_norm(%0, [1, 2], none, none, 1e-05) !random seq=1
  [%3: f32[2]] = aten.split.Tensor(%0, 1, -1) !backward # a comment
  %4: f32[2] = aten.add.Scalar(%0, complex(1.0, -inf), nan)
  %5: f32[2] = aten.gelu(%0, "a\x01")
  %6: f32[2] = aten.sum.dim_IntList(%0, [0], true, dtype.f32)
  ahead.call(graph(): { return () }) from="x"
  return (%0 Output 0, none Output 1))";
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(error_of(text.substr(0, length)), "no error");
    std::string broken = text;
    broken.erase(length, 1 + length % 7);
    error_of(broken);
  }
}

}  // namespace parser_errors_test
}  // namespace ahead
