/* Calls A() and B() of two other files of the program. */
#ifdef __cplusplus
extern "C" {
#endif
int A(void);
int B(void);
#ifdef __cplusplus
}
#endif

int main(void) { return A() ? B() ? 0 : 2 : 1; }
