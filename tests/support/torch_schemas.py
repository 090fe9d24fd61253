"""Torch schemas of every kind that can be declared."""

SCHEMAS = (
    "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor",
    "my::every(Tensor x, Tensor y, Tensor? mask, Tensor[] others, float a, int[] axes=[0, 1], str mode='sum', "
    "bool strict=True, int n=3) -> (Tensor, Tensor z)",
    "my::one(Tensor x) -> Tensor",
    "my::first_is_optional(Tensor? mask, Tensor x) -> Tensor",
    "my::lists(Tensor x, float[] a, int[] b=[], float[] d=[0.5], int[] e=[1], str s='it is \"so\"') -> Tensor",
    "my::a_long_name_of_an_operator_that_somebody_has_chosen(Tensor the_first_of_all_of_its_inputs, Tensor? "
    "another_input_that_may_be_absent, Tensor[] and_any_number_of_tensors_more, float a_factor_with_a_long_name=0.125, "
    "int[] a_list_with_a_name_that_is_rather_long=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]) -> (Tensor the_first_of_its_outputs, "
    "Tensor the_second_of_its_outputs)",
    "my::taken(Tensor i, Tensor value, Tensor value_data, float i_2, bool shape=False) -> (Tensor y, Tensor z)",
    "MyNamespace::ScaleShift(Tensor x, *, int axis=-1) -> Tensor out",
    "my::three(Tensor x, Tensor y, Tensor z, float alpha=1e-05) -> (Tensor, Tensor, Tensor)",
    "my::extreme(Tensor x, float a=1e-12, float b=100000000.0, int c=-9223372036854775808, str s='corners') -> Tensor",
    "my::medium(Tensor first_input, Tensor second_input, float eps=1e-05, bool flag=False) -> (Tensor, Tensor)",
    "my::variadic(Tensor x, Tensor[] xs) -> Tensor",
    "my::each(Tensor[] xs, float alpha=1.0) -> Tensor[]",
    "my::parts(Tensor x, Tensor? mask, int chunks, int[] sizes) -> (Tensor, Tensor[] several)",
    "my::absent(Tensor x, Tensor? bias=None, float slope=1, float[] steps=[1, 2]) -> Tensor",
    "my::kept.over(float level, Tensor self, Tensor[] xs, int[2] size, SymInt[2] stride=1, *, Tensor? mask=None, "
    "float signed, SymInt dim=-1, ScalarType? dtype=None, bool? pin_memory=None) -> (Tensor sums)",
    "my::behind(Tensor x, float a, Tensor y, *, float b=1.0, int c, str mode='here') -> Tensor",
)
