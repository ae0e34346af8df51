#include "native/print/type_words.h"

namespace ahead::native {

const TypeWords& words_for(Type type) {
  static constexpr TypeWords table[] = {
      {"F", "float", "set_f", "f32", "to_f", 4}, {"D", "double", "set_d", "f64", "to_d", 8},
      {"L", "long", "set_l", "i64", "to_l", 8},  {"I", "int", "set_i", "i32", "to_i", 4},
      {"I", "int", "set_i", "i32", "to_i", 4},
  };
  return table[static_cast<size_t>(type)];
}

MemoryWords memory_words_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return {"float", "f32"};
    case at::kDouble:
      return {"double", "f64"};
    case at::kLong:
      return {"long", "i64"};
    case at::kInt:
      return {"int", "i32"};
    case at::kBFloat16:
      return {"unsigned short", "bf16"};
    case at::kHalf:
      return {"unsigned short", "f16"};
    default:
      return {"bool", "bool"};
  }
}

}  // namespace ahead::native
