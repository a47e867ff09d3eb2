// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "support/expect.h"
#include "support/files.h"

namespace braid::launch {
namespace {

using test::contains;
using test::error_of;
using Set = std::map<std::string, std::string>;

Environment read(const Set& set) {
  return environment([&](const char* name) -> std::optional<std::string> {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Set& set) {
  return error_of([&] { read(set); });
}

Set with(Set set, const Set& more) {
  for (const auto& [name, value] : more) set[name] = value;
  return set;
}

const Set srun = {{"SLURM_STEP_ID", "0"},
                  {"SLURM_JOB_ID", "1234567"},
                  {"SLURM_NTASKS", "4"},
                  {"SLURM_PROCID", "3"},
                  {"SLURM_LOCALID", "0"},
                  {"SLURM_NODEID", "1"},
                  {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                  {"SLURM_STEP_NODELIST", "raven[0123,0124]"},
                  {"SLURM_JOB_NODELIST", "raven[0100,0123-0124]"}};
const Set mpi = {{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                 {"OMPI_COMM_WORLD_NODE_RANK", "2"},  {"PMIX_NAMESPACE", "658505729"}};
const Set torchrun = {{"RANK", "5"},
                      {"WORLD_SIZE", "8"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "4"},
                      {"GROUP_RANK", "1"},
                      {"MASTER_ADDR", "node7"},
                      {"MASTER_PORT", "29500"},
                      {"TORCHELASTIC_RUN_ID", "abc"},
                      {"TORCHELASTIC_RESTART_COUNT", "2"},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Set own = {{"RANK", "1"},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_RANK", "1"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "127.0.0.1"},
                 {"MASTER_PORT", "40001"},
                 {"BRAID_STORE", "served"},
                 {"BRAID_STORE_SOCKET", "7"},
                 {"BRAID_JOB_TOKEN", "secret"}};
const Set pytorch_job = {{"RANK", "2"},
                         {"WORLD_SIZE", "3"},
                         {"MASTER_ADDR", "vit-master-0"},
                         {"MASTER_PORT", "23456"},
                         {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
const Set pods = {{"PET_NODE_RANK", "1"},
                  {"PET_NNODES", "2"},
                  {"PET_NPROC_PER_NODE", "4"},
                  {"PET_MASTER_ADDR", "vit-node-0-0.vit"},
                  {"PET_MASTER_PORT", "29400"}};
const Set skypilot = {{"SKYPILOT_NODE_RANK", "1"},
                      {"SKYPILOT_NODE_IPS", "10.1.0.4\n10.1.0.5"},
                      {"SKYPILOT_NUM_NODES", "2"},
                      {"SKYPILOT_NUM_GPUS_PER_NODE", "8"},
                      {"SKYPILOT_TASK_ID", "sky-2026-vit-7"}};

struct Row {
  const char* name;
  Set set;
  Launcher launcher;
  int rank, world, local_rank, local_world, node_rank, to_start;
  const char* address;
  int port;
  const char* token;
};

class Launchers : public testing::TestWithParam<Row> {};

TEST_P(Launchers, SayWhichRankThisIs) {
  const Row& row = GetParam();
  const Environment here = read(row.set);
  EXPECT_EQ(to_text(here.launcher), to_text(row.launcher));
  EXPECT_EQ(here.rank, row.rank);
  EXPECT_EQ(here.world, row.world);
  EXPECT_EQ(here.local_rank, row.local_rank);
  EXPECT_EQ(here.local_world, row.local_world);
  EXPECT_EQ(here.node_rank, row.node_rank);
  EXPECT_EQ(here.to_start, row.to_start);
  EXPECT_EQ(here.master_address, row.address);
  EXPECT_EQ(here.master_port, row.port);
  EXPECT_EQ(here.token, row.token);
}

const Row rows[] = {
    {"Alone", {}, Launcher::alone, 0, 1, 0, 1, 0, 1, "", 0, "open"},
    {"Own", own, Launcher::own, 1, 2, 1, 2, 0, 1, "127.0.0.1", 40001, "secret"},
    {"OwnInsideSrun", with(srun, own), Launcher::own, 1, 2, 1, 2, 0, 1, "127.0.0.1", 40001,
     "secret"},
    {"Torchrun", torchrun, Launcher::torchrun, 5, 8, 1, 4, 1, 1, "node7", 29500, "abc.2"},
    {"TorchrunInsideSrun", with(srun, torchrun), Launcher::torchrun, 5, 8, 1, 4, 1, 1, "node7",
     29500, "abc.2"},
    {"TorchrunInsideAPod", with(pods, torchrun), Launcher::torchrun, 5, 8, 1, 4, 1, 1, "node7",
     29500, "abc.2"},
    {"RankAndWorldAlone",
     {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
     Launcher::torchrun,
     1,
     2,
     0,
     0,
     -1,
     1,
     "",
     0,
     "open"},
    {"Srun", srun, Launcher::slurm, 3, 4, 0, 1, 1, 1, "raven0123", 19567, "1234567.0."},
    {"SrunRequeued", with(srun, {{"SLURM_RESTART_COUNT", "1"}}), Launcher::slurm, 3, 4, 0, 1, 1, 1,
     "raven0123", 19567, "1234567.0.1"},
    {"SrunWithAMaster", with(srun, {{"MASTER_ADDR", "ib7"}, {"MASTER_PORT", "5000"}}),
     Launcher::slurm, 3, 4, 0, 1, 1, 1, "ib7", 5000, "1234567.0."},
    {"SrunOnOneHost",
     with(srun, {{"SLURM_NODEID", "0"},
                 {"SLURM_STEP_TASKS_PER_NODE", "4"},
                 {"SLURM_STEP_NODELIST", "raven0124"}}),
     Launcher::slurm, 3, 4, 0, 4, 0, 1, "raven0124", 19567, "1234567.0."},
    {"BatchShell",
     {{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
     Launcher::alone,
     0,
     1,
     0,
     1,
     0,
     1,
     "",
     0,
     "open"},
    {"Mpirun", mpi, Launcher::mpirun, 2, 4, 2, 4, 0, 1, "127.0.0.1", 20729, "658505729."},
    {"MpirunInsideSbatch",
     with(mpi, {{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
     Launcher::mpirun, 2, 4, 2, 4, 0, 1, "127.0.0.1", 20729, "658505729."},
    {"MpirunOnTwoHosts", with(mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}), Launcher::mpirun, 2, 4,
     2, 3, -1, 1, "", 20729, "658505729."},
    {"PytorchJob", pytorch_job, Launcher::kubernetes, 2, 3, 0, 1, 2, 1, "vit-master-0", 23456,
     "vit-master-0"},
    {"PodsOfManyRanks", pods, Launcher::kubernetes, 4, 8, 0, 4, 1, 4, "vit-node-0-0.vit", 29400,
     "vit-node-0-0.vit"},
    {"PodsOfARankAGpu",
     with(pods, {{"PET_NPROC_PER_NODE", "auto"}, {"CUDA_VISIBLE_DEVICES", "2,5,7"}}),
     Launcher::kubernetes, 3, 6, 0, 3, 1, 3, "vit-node-0-0.vit", 29400, "vit-node-0-0.vit"},
    {"PodsWhoseGpusAreHidden",
     with(pods, {{"PET_NPROC_PER_NODE", "gpu"}, {"CUDA_VISIBLE_DEVICES", "-1"}}),
     Launcher::kubernetes, 1, 2, 0, 1, 1, 1, "vit-node-0-0.vit", 29400, "vit-node-0-0.vit"},
    {"PodsOfCpus", with(pods, {{"PET_NPROC_PER_NODE", "cpu"}}), Launcher::kubernetes, 1, 2, 0, 1, 1,
     1, "vit-node-0-0.vit", 29400, "vit-node-0-0.vit"},
    {"Skypilot", skypilot, Launcher::skypilot, 8, 16, 0, 8, 1, 8, "10.1.0.4", 12910,
     "sky-2026-vit-7"},
    {"SkypilotWithoutGpus", with(skypilot, {{"SKYPILOT_NUM_GPUS_PER_NODE", "0"}}),
     Launcher::skypilot, 1, 2, 0, 1, 1, 1, "10.1.0.4", 12910, "sky-2026-vit-7"},
};
INSTANTIATE_TEST_SUITE_P(Environment, Launchers, testing::ValuesIn(rows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Environment, KnowsWhoServesTheStore) {
  EXPECT_TRUE(read(own).store_served);
  EXPECT_TRUE(read(torchrun).store_served);
  EXPECT_FALSE(read(srun).store_served);
}

// RANK and WORLD_SIZE set by hand: the shell that started the rank may go.
TEST(Environment, KnowsWhetherARankEndsWithItsParent) {
  EXPECT_TRUE(read(torchrun).parent_is_launcher);
  EXPECT_TRUE(read(mpi).parent_is_launcher);
  EXPECT_FALSE(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).parent_is_launcher);
  EXPECT_FALSE(read(own).parent_is_launcher);
  EXPECT_FALSE(read(srun).parent_is_launcher);
}

TEST(Environment, KnowsAJobWithoutSrun) {
  EXPECT_EQ(read({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "4"}}).waiting_tasks, 4);
  EXPECT_EQ(read(srun).waiting_tasks, 0);
  EXPECT_EQ(read(with(own, {{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "4"}})).waiting_tasks, 0);
}

TEST(Environment, KnowsTheSocketOfItsLauncher) {
  EXPECT_EQ(read(own).store_socket, 7);
  EXPECT_EQ(read(torchrun).store_socket, -1);
}

TEST(Environment, KnowsWhetherTheTokenIsASecret) {
  EXPECT_TRUE(read(own).secret);
  EXPECT_FALSE(read(torchrun).secret);
  EXPECT_FALSE(read(srun).secret);
  EXPECT_FALSE(read(mpi).secret);
  const Environment drawn =
      read(with(mpi, {{"OMPI_MCA_orte_precondition_transports", "8aa1b0c2d3e4f506-1"}}));
  EXPECT_TRUE(drawn.secret) << "Open MPI draws it for the ranks of one job";
  const Environment given = read(with(srun, {{"BRAID_JOB_TOKEN", "7f3a"}}));
  EXPECT_TRUE(given.secret);
  EXPECT_EQ(given.token, "7f3a");
  EXPECT_EQ(read(with(torchrun, {{"BRAID_JOB_TOKEN", "7f3a"}})).token, "7f3a.2")
      << "each try of torchrun meets again in one store";
}

TEST(Environment, ReadsTheTokenFromAFileOfItsOwner) {
  const test::TempDir dir;
  const std::string file = (dir / "token").string();
  const Set given = with(srun, {{"BRAID_JOB_TOKEN_FILE", file}});
  EXPECT_TRUE(contains(refusal(given), "no token in the file " + file));
  std::ofstream(file) << "7f3a9c\n";
  std::filesystem::permissions(file, std::filesystem::perms(0640));
  EXPECT_TRUE(contains(refusal(given), "is open to others"));
  EXPECT_TRUE(contains(refusal(given), "chmod 600 " + file));
  std::filesystem::permissions(file, std::filesystem::perms(0600));
  EXPECT_EQ(read(given).token, "7f3a9c");
  EXPECT_TRUE(read(given).secret);
}

TEST(Environment, PortOfAJob) {
  EXPECT_EQ(port_of_job("1234567"), 19567);
  EXPECT_EQ(port_of_job("12"), 15012);
  EXPECT_EQ(port_of_job("1230007"), 15007);
  EXPECT_EQ(port_of_job("4711_3"), 19711);
  EXPECT_EQ(port_of_job(""), 12910);
  const int named = port_of_job("prterun-n1-4711@1");  // Open MPI 5
  EXPECT_GE(named, 15000);
  EXPECT_LT(named, 25000);
  EXPECT_NE(named, port_of_job("prterun-n1-4712@1"));
}

TEST(Environment, WrongValuesAreNamed) {
  EXPECT_TRUE(contains(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK is \"x\""));
  EXPECT_TRUE(contains(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "a number from 0 to 1"));
  EXPECT_TRUE(contains(refusal({{"RANK", "0"}}), "RANK is set, WORLD_SIZE is not"));
  EXPECT_TRUE(contains(refusal({{"WORLD_SIZE", "2"}}), "WORLD_SIZE is set, RANK is not"));
  EXPECT_TRUE(contains(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}),
                       "OMPI_COMM_WORLD_SIZE is set, OMPI_COMM_WORLD_RANK is not"));
  EXPECT_TRUE(contains(refusal(with(own, {{"MASTER_PORT", "70000"}})), "MASTER_PORT is \"70000\""));
  EXPECT_TRUE(contains(refusal(with(pods, {{"PET_NPROC_PER_NODE", "many"}})),
                       "PET_NPROC_PER_NODE is \"many\""));
  EXPECT_TRUE(contains(refusal(with(srun, {{"SLURM_STEP_NODELIST", "n[1-"}})),
                       "\"n[1-\" is not a list of hosts"));
}

TEST(Environment, OfThisProcess) {
  const Environment here = environment();
  EXPECT_GT(here.columns, 0);
  EXPECT_FALSE(here.host.empty());
  EXPECT_FALSE(here.cores.empty());
}

TEST(Environment, SendsWhatNcclSaysToAFileOfTheRank) {
  ::unsetenv("NCCL_DEBUG");
  ::unsetenv("NCCL_DEBUG_FILE");
  EXPECT_FALSE(send_nccl_debug_to("a.log")) << "nobody asked";
  ::setenv("NCCL_DEBUG", "INFO", 1);
  EXPECT_TRUE(send_nccl_debug_to("a.log"));
  EXPECT_EQ(variable("NCCL_DEBUG_FILE"), "a.log");
  EXPECT_FALSE(send_nccl_debug_to("b.log")) << "it is set";
  EXPECT_EQ(variable("NCCL_DEBUG_FILE"), "a.log");
  ::unsetenv("NCCL_DEBUG");
  ::unsetenv("NCCL_DEBUG_FILE");
}

}  // namespace
}  // namespace braid::launch
