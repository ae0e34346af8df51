#include "native/print/prelude.h"

namespace ahead::native {
namespace {

// Functions of MKL as LibTorch calls them: with high accuracy, denormal numbers and no errors.
constexpr Word library_table[] = {
    {"BY_LIBRARY", R"(
#define BY_LIBRARY(V, type, name, function)                         \
  extern "C" void function(int, const type*, type*, long long mode); \
  INLINE V name(V x) {                                               \
    V r;                                                             \
    function(LANES, (const type*)&x, (type*)&r, 0x140102);           \
    return r;                                                        \
  }
)"},
    {"library_sqrt", "\nBY_LIBRARY(F, float, library_sqrt, vmsSqrt)\n"},
    {"library_sqrt", "\nBY_LIBRARY(D, double, library_sqrt, vmdSqrt)\n", true},
    {"library_exp", "\nBY_LIBRARY(F, float, library_exp, vmsExp)\n"},
    {"library_exp", "\nBY_LIBRARY(D, double, library_exp, vmdExp)\n", true},
    {"library_log", "\nBY_LIBRARY(F, float, library_log, vmsLn)\n"},
    {"library_log", "\nBY_LIBRARY(D, double, library_log, vmdLn)\n", true},
    {"library_log2", "\nBY_LIBRARY(F, float, library_log2, vmsLog2)\n"},
    {"library_log2", "\nBY_LIBRARY(D, double, library_log2, vmdLog2)\n", true},
    {"library_log10", "\nBY_LIBRARY(F, float, library_log10, vmsLog10)\n"},
    {"library_log10", "\nBY_LIBRARY(D, double, library_log10, vmdLog10)\n", true},
    {"library_erf", "\nBY_LIBRARY(F, float, library_erf, vmsErf)\n"},
    {"library_erf", "\nBY_LIBRARY(D, double, library_erf, vmdErf)\n", true},
    {"library_tanh", "\nBY_LIBRARY(F, float, library_tanh, vmsTanh)\n"},
    {"library_tanh", "\nBY_LIBRARY(D, double, library_tanh, vmdTanh)\n", true},
    {"library_sin", "\nBY_LIBRARY(F, float, library_sin, vmsSin)\n"},
    {"library_sin", "\nBY_LIBRARY(D, double, library_sin, vmdSin)\n", true},
    {"library_cos", "\nBY_LIBRARY(F, float, library_cos, vmsCos)\n"},
    {"library_cos", "\nBY_LIBRARY(D, double, library_cos, vmdCos)\n", true},
};

}  // namespace

std::span<const Word> library_words() {
  return library_table;
}

}  // namespace ahead::native
