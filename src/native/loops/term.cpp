#include "native/loops/term.h"

#include <cstring>

namespace ahead::native {
namespace {

constexpr OpTraits traits[] = {
    {"load", 1},    {"number", 0},       {"position", 2},   {"load_at", 8},  {"add", 1},
    {"sub", 1},     {"mul", 1},          {"div", 5},        {"neg", 1},      {"abs", 1},
    {"max", 2},     {"min", 2},          {"pow", 60},       {"floor", 1},    {"ceil", 1},
    {"trunc", 1},   {"round", 1},        {"sqrt", 6},       {"rsqrt", 10},   {"sign", 3},
    {"exp", 15},    {"expm1", 25},       {"log", 20},       {"log2", 20},    {"log10", 20},
    {"log1p", 25},  {"erf", 25},         {"tanh", 20},      {"sigmoid", 18}, {"sin", 25},
    {"cos", 25},    {"less", 1},         {"less_equal", 1}, {"equal", 1},    {"and", 1},
    {"or", 1},      {"not", 1},          {"select", 1},     {"convert", 1},  {"round_to", 4},
    {"rounded", 0}, {"multiply_add", 1}, {"row_sum", 1},    {"row_max", 2},  {"row_min", 2},
};

}  // namespace

const OpTraits& traits_of(Op op) {
  return traits[static_cast<size_t>(op)];
}

std::optional<Type> compute_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kBFloat16:
    case at::kHalf:
      return Type::F32;
    case at::kDouble:
      return Type::F64;
    case at::kLong:
      return Type::I64;
    case at::kInt:
      return Type::I32;
    case at::kBool:
      return Type::Bool;
    default:
      return std::nullopt;
  }
}

bool Term::operator==(const Term& other) const {
  return op == other.op && type == other.type && dtype == other.dtype &&
         operands == other.operands && std::memcmp(&number, &other.number, sizeof number) == 0 &&
         integer == other.integer && buffer == other.buffer;
}

}  // namespace ahead::native
