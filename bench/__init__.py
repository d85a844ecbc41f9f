"""How fast is Trainmaster, beside its peers and the machine's own limits, in the same run?"""
