// SPDX-License-Identifier: MIT
//
// The simulator's own test.
//   test run CASE MUTATION     runs a case of cases.cpp or host.cpp; the exit status says what
//                              happened: 0 right, 10 there were reports, 11 wrong, 12 both
//   test correct               all cases without a bug, in this process
//   test all MUTATIONS TEST... runs everything for the flavours' test programs, each bug in a
//                              process of its own; ends with the line "N passed, N failed"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fstream>
#include <sstream>
#include <string>
#include "../include/sim.h"
#include "cases.h"
#include "kernels.h"

static const Case *find_case(const char *name) {
  for (const Case *list : {cases, host_cases})
    for (const Case *c = list; c->name; c++)
      if (!strcmp(c->name, name)) return c;
  fprintf(stderr, "no case %s\n", name);
  exit(2);
}

// 10: reports, 11: wrong, 12: both.
static int run_case(const Case *c) {
  cudaStream_t s;
  const long before = sim_faults();
  if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)) return 11;
  const bool right = c->run(s);
  cudaStreamDestroy(s);
  cudaDeviceSynchronize();
  const bool reported = sim_faults() > before;
  return reported ? (right ? 10 : 12) : right ? 0 : 11;
}

static int run_correct() {
  int failed = 0;
  for (const Case *list : {cases, host_cases})
    for (const Case *c = list; c->name; c++)
      if (const int r = run_case(c)) {
        fprintf(stderr, "%s: %s\n", c->name, r == 10 ? "reports" : r == 11 ? "wrong" : "both");
        failed++;
      }
  sim_counts counts;
  sim_get_counts(&counts);
  if (counts.live_blocks) {
    fprintf(stderr, "%llu allocations are left\n",
            static_cast<unsigned long long>(counts.live_blocks));
    failed++;
  }
  return failed ? 1 : 0;
}

static int passed, failed;

// Runs a command with settings ("A=1 B=2"); the wait status, and what it printed.
static int spawn(const std::string &settings, const std::vector<std::string> &command,
                 std::string *output) {
  int fd[2];
  if (pipe(fd)) exit(2);
  const pid_t pid = fork();
  if (!pid) {
    dup2(fd[1], 1);
    dup2(fd[1], 2);
    close(fd[0]);
    close(fd[1]);
    std::istringstream in(settings);
    for (std::string word; in >> word;)
      if (word.find('=') != std::string::npos) putenv(strdup(word.c_str()));
    setenv("ASAN_OPTIONS", "exitcode=10:detect_leaks=0:handle_segv=0:handle_sigfpe=0", 0);
    setenv("UBSAN_OPTIONS", "halt_on_error=1:exitcode=10", 0);
    alarm(60);
    std::vector<char *> argv;
    for (const std::string &w : command) argv.push_back(const_cast<char *>(w.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(fd[1]);
  char buffer[4096];
  for (ssize_t n; (n = read(fd[0], buffer, sizeof buffer)) > 0;)
    output->append(buffer, static_cast<size_t>(n));
  close(fd[0]);
  int status;
  waitpid(pid, &status, 0);
  return status;
}

static std::string outcome(int status) {
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? "hang" : "crash";
  switch (WEXITSTATUS(status)) {
  case 0: return "clean";
  case 10: return "report";
  case 11: return "wrong";
  case 12: return "report wrong";
  default: return "exit " + std::to_string(WEXITSTATUS(status));
  }
}

static void result(bool good, const std::string &what, const std::string &output) {
  (good ? passed : failed)++;
  if (good && !getenv("V")) return;
  printf("%s %s\n", good ? "ok  " : "FAIL", what.c_str());
  if (!good || getenv("V")) printf("%s", output.c_str());
  fflush(stdout);
}

static std::string flavour_of(const std::string &program) {
  std::string output;
  spawn("", {program, "flavour"}, &output);
  return output.substr(0, output.find('\n'));
}

static void run_file(const char *path, const std::string &program) {
  const std::string flavour = flavour_of(program);
  std::ifstream in(path);
  if (!in) exit(2);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    // number | case | flavour | settings | outcomes | text that must be printed | what it is
    std::vector<std::string> field;
    std::istringstream fields(line);
    for (std::string f; std::getline(fields, f, '|');) {
      const size_t a = f.find_first_not_of(' '), b = f.find_last_not_of(' ');
      field.push_back(a == std::string::npos ? "" : f.substr(a, b - a + 1));
    }
    if (field.size() != 7) {
      result(false, "mutations: " + line, "");
      continue;
    }
    if (field[2] != flavour && field[2] != "any") continue;
    std::string output;
    const std::string got = outcome(spawn(field[3], {program, "run", field[1], field[0]}, &output));
    bool expected = false;
    std::istringstream wanted(field[4]), words(got);
    for (std::string word; words >> word;)
      if ((" " + field[4] + " ").find(" " + word + " ") != std::string::npos) expected = true;
    const bool said = field[5].empty() || output.find(field[5]) != std::string::npos;
    result(expected && said,
           flavour + " " + field[0] + " " + field[1] + " (" + field[6] + "; " + field[3] + "): " +
               got + (expected ? said ? "" : ", not said: " + field[5] : ", expected " + field[4]),
           output);
  }
}

static int run_all(int argc, char **argv) {
  for (int i = 3; i < argc; i++)
    for (const char *order : {"forward", "reverse", "random"})
      for (const char *streams : {"eager", "lazy", "random"}) {
        const std::string settings = std::string("SIM_ORDER=") + order + " SIM_STREAMS=" + streams;
        std::string output;
        const int status = spawn(settings, {argv[i], "correct"}, &output);
        result(status == 0, std::string(argv[i]) + " " + settings + ": " + outcome(status), output);
      }
  for (int i = 3; i < argc; i++) run_file(argv[2], argv[i]);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

int main(int argc, char **argv) {
  sim_set_devices(2);
  if (argc > 3 && !strcmp(argv[1], "run")) {
    mutation = atoi(argv[3]);
    // what follows from a crash or a fault is no matter: leave without destructors' checks
    const int r = run_case(find_case(argv[2]));
    fflush(stderr);
    if (getenv("SIM_EXIT")) exit(r); // but this is told at the end
    _exit(r);
  }
  if (argc > 1 && !strcmp(argv[1], "correct")) return run_correct();
  if (argc > 1 && !strcmp(argv[1], "flavour")) return puts(sim_flavour()) < 0;
  if (argc > 3 && !strcmp(argv[1], "all")) return run_all(argc, argv);
  fprintf(stderr, "usage: see the source\n");
  return 2;
}
