// SPDX-License-Identifier: BSD-3-Clause
// Everything a training program needs. Heavy: include single headers where compile time matters.
//
//   #include <braid/braid.h>
#pragma once
#include "braid/checkpoint/safetensors.h"
#include "braid/checkpoint/store.h"
#include "braid/core/error.h"
#include "braid/core/options.h"
#include "braid/core/param.h"
#include "braid/core/precision.h"
#include "braid/core/state.h"
#include "braid/data/loader.h"
#include "braid/data/make.h"
#include "braid/data/options.h"
#include "braid/nn/layers.h"
#include "braid/nn/loss.h"
#include "braid/nn/metrics.h"
#include "braid/nn/options.h"
#include "braid/optim/optimizer.h"
#include "braid/optim/schedule.h"
#include "braid/parallel/mesh.h"
#include "braid/report/sink.h"
#include "braid/train/evaluate.h"
#include "braid/train/session.h"
#include "braid/train/step.h"
#include "braid/train/trainer.h"
