// SPDX-License-Identifier: BSD-3-Clause
#include <cpuid.h>
#include <stdlib.h>

#include "braid/core/cpu.h"

namespace braid {
namespace {

bool amx_without_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool announced = (d >> 24) & 1;
  const bool described = __get_cpuid_count(0x1d, 1, &a, &b, &c, &d) && a != 0;
  return announced && !described;
}

}  // namespace

std::string avoid_broken_amx() {
  if (!amx_without_tiles()) return "";
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", /*overwrite=*/0);
  return "this machine announces AMX without describing its tiles: oneDNN uses AVX-512 instead";
}

}  // namespace braid
