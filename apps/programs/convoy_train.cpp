#include "convoy/apps/programs/programs.h"

int main(int argc, char** argv) { return convoy::run_train_program("convoy-train", argc, argv); }
