#include "convoy/apps/programs/programs.h"

int main(int argc, char** argv) { return convoy::run_evaluate_program("convoy-evaluate", argc, argv); }
