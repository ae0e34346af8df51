#include "ahead/graph.h"
#include "ir/constants.h"
#include "ir/signature.h"
#include "support/round_trip.h"

namespace ahead {
namespace every_operator_test {

using c10::TypeKind;

/// Some argument of the type; null if this test does not know any.
std::optional<Argument> some_argument(const c10::TypePtr& type, Value* tensor, bool sparse) {
  if (is_tensor_list_type(*type)) return Argument::List{tensor, tensor};
  if (const auto* optional = type->castRaw<c10::OptionalType>()) {
    if (sparse) return Argument(c10::IValue());
    return some_argument(optional->getElementType(), tensor, sparse);
  }
  switch (type->kind()) {
    case TypeKind::TensorType:
      return Argument(tensor);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::NumberType:
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
    case TypeKind::QSchemeType:
      return Argument(1);
    case TypeKind::FloatType:
      return Argument(0.5);
    case TypeKind::BoolType:
      return Argument(true);
    case TypeKind::ComplexType:
      return Argument(c10::IValue(c10::complex<double>(1, 2)));
    case TypeKind::StringType:
      return Argument(c10::IValue("text"));
    case TypeKind::DeviceObjType:
      return Argument(c10::IValue(at::Device(at::kCUDA, 0)));
    case TypeKind::GeneratorType:
      return Argument(c10::IValue(at::detail::getDefaultCPUGenerator()));
    case TypeKind::ListType: {
      c10::List<c10::IValue> list(c10::AnyType::get());
      auto item = some_argument(type->castRaw<c10::ListType>()->getElementType(), tensor, sparse);
      if (!item || !item->is_constant()) return std::nullopt;
      if (!sparse) list.push_back(item->constant());
      return Argument(coerce_constant(list, type));
    }
    default:
      return Argument(OpaqueConstant::make("opaque", type->str()));
  }
}

bool add_call(Graph& graph, const Operator& op, bool sparse) {
  Value* tensor = graph.inputs()[0].value;
  std::vector<Argument> args;
  for (const c10::Argument& formal : op.schema().arguments()) {
    auto arg = some_argument(formal.real_type(), tensor, sparse);
    if (!arg) return false;
    args.push_back(*arg);
  }
  Node* node = graph.add_node(op, std::move(args));
  auto add_return = [&](const c10::Type& type) {
    if (is_tensor_list_type(type)) {
      graph.add_return_list(node, {tensor->meta, std::nullopt});
    } else {
      const bool is_value = is_tensor_type(type);
      graph.add_return(node, is_value ? std::make_optional(tensor->meta) : std::nullopt);
    }
  };
  for (const c10::Argument& ret : op.schema().returns()) add_return(*ret.real_type());
  for (size_t i : written_arguments(op)) add_return(*op.schema().arguments()[i].real_type());
  return true;
}

/// Kernels see no difference between a constant and what its text reads back as.
void expect_same_types(const Node& written, const Node& read) {
  for (size_t i = 0; i < written.args().size(); ++i) {
    if (!written.args()[i].is_constant()) continue;
    EXPECT_EQ(written.args()[i].constant().type()->str(), read.args()[i].constant().type()->str());
  }
}

TEST(EveryOperator, GoesThroughText) {
  size_t tested = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    auto handle = c10::Dispatcher::singleton().findSchema(name);
    // This one takes an integer and the name of a size: see tests/interpreter/size_reads_test.cpp.
    if (!handle || name.name == "ahead::local_scalar_dense") continue;
    for (bool sparse : {false, true}) {
      Graph graph;
      graph.add_input({Slot::Kind::Primal, 0}, TensorMeta::contiguous({2, 3}));
      if (!add_call(graph, Operator::of(*handle), sparse)) continue;
      expect_round_trip(graph);
      expect_same_types(*graph.first(), *Graph::parse(graph.str()).first());
      ASSERT_FALSE(HasFailure()) << graph.str();
      ++tested;
    }
  }
  EXPECT_GT(tested, 6000u);
}

}  // namespace every_operator_test
}  // namespace ahead
