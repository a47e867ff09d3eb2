// SPDX-License-Identifier: BSD-3-Clause
// A data set: samples by index. A source says the shape of a sample and fills tensors that the
// loader hands it.
//
//   auto source = data::open_source(options, data::Split::train, seed);
//   data::Sample sample = data::empty_sample(source->spec());
//   source->read({.index = 7, .epoch = 0}, sample);
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/data/field_info.h"

namespace braid::data {

struct TensorSpec {
  std::vector<int64_t> shape;
  c10::ScalarType dtype = c10::kFloat;
};

struct SampleSpec {
  TensorSpec input, target;
  int64_t tokens = 0;  // tokens a sample, 0: not a token model
};

struct Sample {
  at::Tensor input, target;  // CPU, contiguous, of the spec's shape
};

struct Access {
  int64_t index = 0;
  int64_t epoch = 0;  // sources that draw at random (crops) draw by (seed, epoch, index)
};

// x <- (x - mean[c]) / std[c] for every channel of a sample [C, ...], in fp32; empty: as it is.
struct Scaling {
  std::vector<float> mean = {}, std = {};
};

class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  virtual const SampleSpec& spec() const = 0;
  // Fills `out`. Called by many threads at once. Throws DataError that names the file and the
  // sample.
  virtual void read(Access access, const Sample& out) const = 0;
  // What read() does at last to input and target, and a GPU may do instead, with the same bits.
  virtual Scaling scaling() const { return {}; }
  virtual void read_unscaled(Access access, const Sample& out) const { read(access, out); }
  // Names, units and coordinates of the channels and points of a target; empty where unknown.
  virtual FieldInfo fields() const { return {}; }
  virtual std::string describe(
      int64_t index) const = 0;  // "data/train/2008.h5, frame 12": for messages
};

Sample empty_sample(const SampleSpec& spec);

}  // namespace braid::data
