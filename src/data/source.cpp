// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/source.h"

#include "data/tensor.h"

namespace braid::data {

Sample empty_sample(const SampleSpec& spec) {
  return {empty_tensor(spec.input.shape, spec.input.dtype),
          empty_tensor(spec.target.shape, spec.target.dtype)};
}

}  // namespace braid::data
