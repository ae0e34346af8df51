#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ahead/export.h"
#include "ahead/graph.h"

namespace ahead {

/// What the inputs and outputs of an exported graph are, by name. Parameters and buffers have the
/// names that the module gives them (`layers.0.weight`).
struct AHEAD_API GraphSignature {
  enum class InputKind : uint8_t {
    Parameter,
    Buffer,
    Constant,   ///< a tensor that the module uses without having registered it
    UserInput,  ///< a tensor of the arguments
    Tangent,    ///< the gradient of the user output of that name
    Token,      ///< orders effects
  };
  enum class OutputKind : uint8_t {
    Token,
    ParameterMutation,  ///< the new contents of the parameter of that name
    BufferMutation,
    UserInputMutation,
    UserOutput,  ///< a tensor of the result
    Gradient,    ///< of the parameter or user input of that name
  };
  struct Input {
    InputKind kind;
    std::string name;
    /// Further names of the same parameter or buffer, where modules share it.
    std::vector<std::string> also = {};

    bool operator==(const Input& other) const = default;
  };
  struct Output {
    OutputKind kind;
    std::string name;

    bool operator==(const Output& other) const = default;
  };
  /// From positions among the graph's inputs or outputs to names.
  using Names = std::map<int64_t, std::string>;

  /// One for each graph input and output, in order: parameters, buffers, constants, user inputs,
  /// tangents; and mutations in this order, user outputs, gradients.
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  /// The position among the outputs of the loss whose gradients the graph computes; -1: none.
  int64_t loss_output = -1;

  /// The names of the inputs of a kind, in order.
  std::vector<std::string> parameters() const { return names_of(InputKind::Parameter); }
  std::vector<std::string> buffers() const { return names_of(InputKind::Buffer); }
  std::vector<std::string> constants() const { return names_of(InputKind::Constant); }
  std::vector<std::string> user_inputs() const { return names_of(InputKind::UserInput); }
  std::vector<std::string> input_tokens() const { return names_of(InputKind::Token); }
  std::vector<std::string> names_of(InputKind kind) const;
  /// The names of the outputs of a kind, in order.
  std::vector<std::string> user_outputs() const { return names_of(OutputKind::UserOutput); }
  std::vector<std::string> output_tokens() const { return names_of(OutputKind::Token); }
  std::vector<std::string> names_of(OutputKind kind) const;

  /// Which input is which parameter or buffer.
  Names inputs_to_parameters() const { return positions_of(InputKind::Parameter); }
  Names inputs_to_buffers() const { return positions_of(InputKind::Buffer); }
  Names positions_of(InputKind kind) const;
  /// Which output holds what for which input.
  Names parameters_to_mutate() const { return positions_of(OutputKind::ParameterMutation); }
  Names buffers_to_mutate() const { return positions_of(OutputKind::BufferMutation); }
  Names user_inputs_to_mutate() const { return positions_of(OutputKind::UserInputMutation); }
  Names positions_of(OutputKind kind) const;
  /// The gradients, of parameters and of user inputs.
  Names gradients_to_parameters() const;
  Names gradients_to_user_inputs() const;

  /// The position of the input of that name, or of that further name; -1: there is none.
  int64_t find_input(std::string_view name) const;
  /// The position of an output; -1: there is none. Gradients are found by further names, too.
  int64_t find_output(OutputKind kind, std::string_view name) const;
  /// The positions of inputs that keep their memory from call to call: parameters, buffers and
  /// constants. For PartitionOptions::static_inputs.
  std::vector<int64_t> static_inputs() const;

  /// Throws UserError unless this describes the inputs and outputs of the graph.
  void check(const Graph& graph) const;
  /// The signature as text, a line for each input and output; parse() reads it back.
  std::string str() const;
  static GraphSignature parse(std::string_view text);
  bool operator==(const GraphSignature& other) const = default;
};

}  // namespace ahead
