// SPDX-License-Identifier: BSD-3-Clause
#include "cli/app.h"

int main(int argc, char** argv) { return braid::cli::run(argc, argv); }
