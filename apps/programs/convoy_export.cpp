#include "convoy/apps/programs/programs.h"

int main(int argc, char** argv) { return convoy::run_export_program("convoy-export", argc, argv); }
