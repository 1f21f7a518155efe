#include "convoy/apps/programs/programs.h"

int main(int argc, char** argv) { return convoy::run_shard_program("convoy-shard", argc, argv); }
