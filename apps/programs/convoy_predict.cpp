#include "convoy/apps/programs/programs.h"

int main(int argc, char** argv) { return convoy::run_predict_program("convoy-predict", argc, argv); }
